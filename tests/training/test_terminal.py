"""The bar of a run moves with every step, whatever else is read and when."""

from wcl.training.monitor.terminal import Terminal


def test_the_bar_moves_at_every_step_and_keeps_the_last_numbers() -> None:
    terminal = Terminal(epochs=3, steps_per_epoch=10, step=0, enabled=True)
    terminal.show_metrics({"loss": 1.5, "images_per_second": 20, "data_wait": 0.1})
    for step in (1, 2):
        terminal.advance(step, 1)
    (task,) = terminal.bar.tasks
    assert (task.completed, task.total, task.fields["epoch"]) == (2, 30, "1/3")
    assert "loss 1.500" in task.fields["metrics"]
