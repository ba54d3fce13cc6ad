"""A stand-in for the toolkit: as much of its Python API as a calculation touches, for tests without it.

Runs sleep on no clock: an event loop's turn each, so that many overlap; event times are made up.
"""

from __future__ import annotations

from pathlib import Path

MODULES = {
    "nat/__init__.py": "",
    "nat/runtime/__init__.py": "",
    "nat/builder/__init__.py": "",
    "nat/runtime/loader.py": """
import json
from types import SimpleNamespace


def load_config(path):
    text = open(path).read()
    if "refuse: true" in text:
        raise ValueError("workflow of an unknown type: key s3cret-value")
    return SimpleNamespace(text=text)
""",
    "nat/builder/workflow_builder.py": """
from contextlib import asynccontextmanager


class WorkflowBuilder:
    @classmethod
    @asynccontextmanager
    async def from_config(cls, config):
        yield cls()
""",
    "nat/builder/context.py": """
import contextvars
from types import SimpleNamespace

current = contextvars.ContextVar("current")


class Manager:
    def __init__(self):
        self.on_next = self.on_complete = None

    def subscribe(self, on_next, on_error, on_complete):
        self.on_next, self.on_complete = on_next, on_complete


class Context:
    @staticmethod
    def get():
        return SimpleNamespace(intermediate_step_manager=current.get())
""",
    "nat/runtime/session.py": """
import asyncio
import os
from contextlib import asynccontextmanager
from enum import Enum
from types import SimpleNamespace

from nat.builder.context import Manager, current


class Kind(str, Enum):
    START = "WORKFLOW_START"
    END = "WORKFLOW_END"
    LLM_START = "LLM_START"
    LLM_END = "LLM_END"


def step(kind, at, identity="w"):
    return SimpleNamespace(event_type=kind, event_timestamp=at, UUID=identity)


class Runner:
    def __init__(self, sessions, prompt, manager):
        self.sessions, self.prompt, self.manager = sessions, prompt, manager

    async def result(self):
        print("a workflow that prints")
        self.sessions.running += 1
        self.sessions.most = max(self.sessions.most, self.sessions.running)
        for _ in range(5):
            await asyncio.sleep(0)
        busy = self.sessions.running
        self.sessions.running -= 1
        if "hang" in self.prompt:
            await asyncio.Event().wait()
        if "die" in self.prompt:
            os.write(2, b"last words, key s3cret-value")
            os._exit(9)
        if "fail" in self.prompt:
            raise RuntimeError("told to fail: key s3cret-value")
        if "silent" not in self.prompt:
            self.manager.on_next(step(Kind.START, 100.0))
            if "plain" not in self.prompt:
                self.manager.on_next(step(Kind.LLM_START, 100.0, "a"))
                if "parallel" in self.prompt:
                    self.manager.on_next(step(Kind.LLM_START, 100.0, "b"))
                    self.manager.on_next(step(Kind.LLM_END, 108.0, "b"))
                self.manager.on_next(step(Kind.LLM_END, 100.0 + 0.25 * busy, "a"))
            self.manager.on_next(step(Kind.END, 101.0 + 0.5 * busy))
        self.manager.on_complete()


class Session:
    def __init__(self, sessions):
        self.sessions = sessions

    @asynccontextmanager
    async def run(self, prompt):
        manager = Manager()
        current.set(manager)
        yield Runner(self.sessions, prompt, manager)


class SessionManager:
    loop = None

    @classmethod
    async def create(cls, config, shared_builder, max_concurrency):
        # Clients that a workflow keeps belong to the loop that they were made in.
        cls.loop = cls.loop or asyncio.get_running_loop()
        assert cls.loop is asyncio.get_running_loop()
        made = cls()
        made.running = made.most = 0
        made.limit = max_concurrency
        return made

    @asynccontextmanager
    async def session(self, user_id):
        yield Session(self)

    async def shutdown(self):
        assert self.most <= self.limit
""",
}


def written(folder: Path) -> Path:
    """The package as a folder for PYTHONPATH."""
    for name, text in MODULES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
