"""What every study needs: what a study is, the runner, results on disk, reports, and the paper's numbers."""
