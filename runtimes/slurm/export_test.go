package slurm

// ClusterName lets tests on real hosts find the files and processes of a unit.
var ClusterName = clusterName
