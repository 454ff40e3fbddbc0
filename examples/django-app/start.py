"""`python start.py`: make the tables, and run a worker beside the development server until Ctrl-C."""

import os
import subprocess
import sys

MANAGE = [sys.executable, "manage.py"]

if __name__ == "__main__":
    subprocess.run([*MANAGE, "migrate", "--verbosity", "0"], check=True)
    worker = subprocess.Popen([*MANAGE, "dibs", "worker"])
    try:
        subprocess.run([*MANAGE, "runserver", "--noreload", os.environ.get("PORT", "8000")], check=False)
    except KeyboardInterrupt:
        pass
    finally:
        worker.terminate()
        worker.wait()
