"""The bundled trained models, their processors and their benchmark."""
