"""Errors of users, told from bugs: they say what is wrong with the input and how to mend it."""


class InputError(ValueError):
    """What was given cannot be used."""


class MissingKeyError(InputError, KeyError):
    """A column, layer or array that was named is not there."""

    def __str__(self) -> str:
        """The message as it is; a KeyError puts it in quotes."""
        return str(self.args[0])


class InputTypeError(InputError, TypeError):
    """What was given is of a type that cannot be used."""


class MissingFileError(InputError, FileNotFoundError):
    """A file or folder that was named is not there."""


class DivergenceError(InputError):
    """A training diverged, or a model's weights are not finite.

    Attributes
    ----------
    n_good_epochs
        Epochs of the training before it diverged.
    """

    def __init__(self, message: str, n_good_epochs: int = 0):
        super().__init__(message)
        self.n_good_epochs = n_good_epochs
