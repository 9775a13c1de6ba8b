PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: study test quick test-extra lint setup

study: setup
	$(BIN)/dse run quickstart --out studies/quickstart

test: setup lint
	$(BIN)/python -m pytest -q -n auto --dist loadfile -m "not extra"

# While working: some tests of every room, in a minute and a half on two cores.
quick: setup
	$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .
	$(BIN)/python -m pytest -q -n auto --dist loadfile -m "not extra" @tests/quick.txt

test-extra: setup
	./tests/extra/install.sh
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev,gp,calibrate,postgres,mysql,cluster,dashboard,interchange]'
	$(BIN)/python -m pytest -q -n auto --dist loadfile -m extra

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/pyright --threads
	$(BIN)/lint-imports

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("dse needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
