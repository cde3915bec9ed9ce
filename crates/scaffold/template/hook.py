../../../deploy/hook/hook.py
