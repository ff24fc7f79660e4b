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
