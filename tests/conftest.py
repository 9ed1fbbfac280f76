"""What holds for all tests."""

import hypothesis

# Nothing asserts a time: on a busy machine an example may take long.
hypothesis.settings.register_profile("onepass", deadline=None)
hypothesis.settings.load_profile("onepass")
