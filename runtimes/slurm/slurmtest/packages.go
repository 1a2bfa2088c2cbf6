package slurmtest

// Packages returns the Debian packages that a site installs on the hosts of its clusters.
func Packages() []string {
	return []string{
		"mariadb-server", "munge", "slurm-client", "slurm-wlm-basic-plugins", "slurm-wlm-jwt-plugin", "slurm-wlm-mysql-plugin",
		"slurmctld", "slurmd", "slurmdbd",
	}
}
