"""What answers a question about a trained model: functions over :class:`~discovr_sc.model.interface.ModelInterface`.

The models' methods of the same names call them; arguments and results are documented there.
"""
