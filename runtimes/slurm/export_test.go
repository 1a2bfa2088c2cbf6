package slurm

// ClusterName lets tests on real hosts find what belongs to a unit.
var ClusterName = clusterName
