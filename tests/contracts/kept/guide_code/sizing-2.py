from workbench.sizing.driving import sweep


async def workflow(prompt: str) -> str:
    return prompt.upper()


swept = sweep.run(workflow, users=[1, 4], least_samples=50, most_samples=50, min_step_s=0)
assert set(swept.requests["outcome"]) == {"ok"}

times = swept.points
