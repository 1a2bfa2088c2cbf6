package slurmtest

import (
	"berth/examples/need"
	"berth/runtimes/slurm/cli"
)

// Packages returns the Debian packages that a site installs on the hosts of its clusters.
func Packages() []string {
	return []string{
		"logrotate", "mariadb-server", "munge", "procps", "slurm-client", "slurm-wlm-basic-plugins", "slurm-wlm-jwt-plugin",
		"slurm-wlm-mysql-plugin",
		"slurmctld", "slurmd", "slurmdbd",
	}
}

// Programs returns the programs of these packages without which no cluster runs.
func Programs() []string {
	return []string{"slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd"}
}

// NotRun returns why a version of Slurm is not tested; "": it is in the table of versions.
func NotRun(version string) string {
	if _, err := cli.Version(version).Tools(); err != nil {
		return need.NotRun + err.Error()
	}
	return ""
}
