"""k-NN accuracy during pretraining, which training receives as a callback."""

from wcl.config import KnnConfig, PretrainConfig
from wcl.data import Source
from wcl.evaluation import evaluate
from wcl.evaluation.splits import labeled_splits
from wcl.system.errors import InputError, RunError
from wcl.system.progress import log
from wcl.training.setup import TrainingSetup


class KnnCallback:
    """Measure k-NN accuracy on the test split after every `log.knn_every` epochs.

    Args:
        config: the settings of the run.
    """

    def __init__(self, config: PretrainConfig) -> None:
        self._every = config.log.knn_every
        self._config = KnnConfig(
            data=config.data, classes=config.classes, num_workers=config.num_workers
        )

    def check(self, source: Source) -> None:
        """Raise InputError if the data do not allow the measurement, before training starts."""
        if not self._every:
            return
        try:
            labeled_splits(self._config, source.channels, source.levels)
        except InputError as error:
            raise InputError(f"--log.knn_every: {error}; or leave it at 0") from error

    def __call__(self, setup: TrainingSetup, epoch: int) -> dict[str, float]:
        """Return {"knn_top1": …} if it is due after this epoch (counted from 1), else {}.

        A failure, such as test images that have disappeared, is reported and does not end the run.
        """
        if not self._every or epoch % self._every:
            return {}
        try:
            result = evaluate(setup.encoder, "knn", config=self._config, references=False)
            return {"knn_top1": result.top1}
        except (InputError, RunError) as error:
            log(f"k-NN after epoch {epoch}: {error}")
            return {}
