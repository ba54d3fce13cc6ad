"""What an accelerator would leave on the CPU, by the text of plans and tables of what it supports; nothing is run."""
