"""`python -m fairsilo.cli`."""

from fairsilo.cli import main

main()
