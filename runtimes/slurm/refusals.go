package slurm

import "maps"

// limitFields has the field of a project's terms by the name of the limit that slurmctld shows
// when it refuses a job, or as the reason of a pending one. The names are the same on 22.05, 24.11
// and 26.05. Those of a QoS come from a QoS of the config, whose limits are not the project's,
// except that of the guaranteed share.
var limitFields = map[string]string{
	"AssocGrpGRES":                    "max_gpus",
	"AssocGrpCpuLimit":                "max_cpus",
	"AssocMaxGRESPerJob":              "max_gpus_per_job",
	"AssocMaxCpuPerJobLimit":          "max_cpus_per_job",
	"AssocGrpJobsLimit":               "max_running_jobs",
	"AssocGrpSubmitJobsLimit":         "max_submitted_jobs", // or the project takes no new jobs
	"AssocMaxWallDurationPerJobLimit": "max_walltime_minutes",
	"MaxGRESPerAccount":               "guaranteed.gpus",
	"MaxCpuPerAccount":                "guaranteed.cpus",

	"PartitionConfig": "queues", // a partition no longer takes the project
	"Invalid account or account/partition combination specified": "queues", // of 22.05
	"Invalid qos specification":                                  "queues", // of 24.11 and 26.05, which compare the QoS first
}

// Limits implements runtimes.Backend.
func (Backend) Limits() map[string]string { return maps.Clone(limitFields) }
