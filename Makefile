# Needs Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SECONDS ?= 60
HOURS  ?= 1
TORCH  := torch==2.13.0

# Before a commit: the house rules, and every row of the table against its dense formula.
CHECKED := tests/test_house.py tests/test_metrics.py tests/model/test_table.py tests/model/test_kernels.py \
           tests/engine/test_engine.py

.PHONY: demo check test docs release fuzz extras lint clean

demo: $(VENV)/.demo
	$(BIN)/inducing demo

check: lint
	$(BIN)/python -m pytest -q -k "not benchmark and not 20011" $(CHECKED)

# One process for each core: threads of BLAS and OpenMP beside them would wait for each other, and spin.
test: export OPENBLAS_NUM_THREADS = 1
test: export OMP_WAIT_POLICY = passive
test: lint
	$(BIN)/python -m pytest -q -n auto --dist worksteal
	$(BIN)/python -m fuzz --seconds $(SECONDS) --jobs 2

# The site, in site/index.html: tutorials run while it is built, and what they print is compared.
docs: $(VENV)/.docs
	$(BIN)/python -m docs.build site

# A source distribution and a wheel; the README's Python by the wheel alone in an empty environment, then, with
# the extras for it, its commands.
release: $(VENV)/.test
	rm -rf dist $(VENV)-release
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	$(VENV)-release/bin/python -m docs.running README.md
	$(VENV)-release/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls $$PWD/dist/*.whl)[cli,plot]"
	$(VENV)-release/bin/python -m docs.running README.md docs/tables.md

# Random and mutated input, each harness for HOURS.
fuzz: $(VENV)/.test
	$(BIN)/python -m fuzz --seconds $$(( $(HOURS) * 3600 )) --seed $$(date +%s)

# What optional tests need; without it those on PyTorch arrays are skipped. This wheel is for the CPU alone.
extras: $(VENV)/.test $(VENV)/.docs
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One stamp per set of extras: reinstalled when the dependencies change.
$(VENV)/.demo: EXTRAS := cli,plot
$(VENV)/.test: EXTRAS := test
$(VENV)/.docs: EXTRAS := docs
$(VENV)/.demo $(VENV)/.test $(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("inducing needs Python 3.11 or newer; this is %d.%d: make PYTHON=python3.11" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) $(VENV)-release build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis inducing-demo.png
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
