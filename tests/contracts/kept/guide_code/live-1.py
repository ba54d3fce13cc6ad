from workbench.eventlog.notebook_config import NotebookConfig
from workbench.live import configured

event_log = "data/samples/eventlogs/failing.zstd"  # its parameters cell
config = configured("mine", NotebookConfig, globals())
assert config.event_log == event_log
