"""The language server: ``server`` speaks the protocol, ``session`` runs programs beside it, ``analysis`` says what."""
