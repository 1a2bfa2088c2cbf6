package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cli"
	"berth/schema/queue"
)

// The names are those of the files that slurmd of 22.05.8 and 24.11.5 made.
func TestOutputPathIsThatOfSlurmd(t *testing.T) {
	job := cli.Job{ID: "1", Raw: "1", User: "ada", Nodes: []string{"gpu-1.lab.example", "gpu-2"}, Name: "j.sh"}
	task := cli.Job{ID: "2_13", Raw: "2", User: "ada", Nodes: []string{"gpu-1"}, Name: job.Name}
	for _, c := range []struct {
		job     cli.Job
		version string
		output  string
		want    string
	}{
		{job, "22.05.8", "/tmp/o/a-%J-%s-%t-%n-%N-%j-%5j-%x-%u-%A-%a-%12j.out",
			"/tmp/o/a-1-batch-0-0-gpu-1-1-00001-j.sh-ada-1-4294967294-0000000001.out"},
		{task, "24.11.5", "/tmp/o/b-%J-%s-%t-%n-%N-%A-%4a-%b-%3b-%j.out", "/tmp/o/b-2-batch-0-0-gpu-1-2-0013-3-003-2.out"},
		{task, "22.05.8", "/tmp/o/b-%J-%s-%t-%n-%N-%A-%4a-%b-%3b-%j.out", "/tmp/o/b-2-batch-0-0-gpu-1-2-0013-%b-3b-2.out"},
		{job, "22.05.8", `/tmp/o/c-\%j-%j.out`, "/tmp/o/c-%j-%j.out"},
		{job, "22.05.8", "/tmp/o/d-%%j-%q-%3N.out", "/tmp/o/d-%j-%q-gpu-1.out"},
		{task, "22.05.8", "/tmp/o/slurm-2.out", "/tmp/o/slurm-2_13.out"}, // what squeue of 22.05 prints without -o
		{task, "24.11.5", "/tmp/o/slurm-%A_%a.out", "/tmp/o/slurm-2_13.out"},
		{job, "24.11.5", "logs/%x.txt", "/tmp/o/logs/j.sh.txt"},
		{job, "24.11.5", "../logs/%x.txt", "/tmp/logs/j.sh.txt"},
	} {
		require.Equal(t, c.want, outputPath(&c.job, cli.JobFiles{Output: c.output, WorkDir: "/tmp/o"}, c.version), c.output)
	}
}

// A requeued job has a record of each run, with a time of submission of its own (sacct -D of 22.05.8 and 24.11.5).
func TestRequeuedJobIsItsLastRun(t *testing.T) {
	run := func(state string, submitted, started, ended int64) cli.Job {
		return cli.Job{ID: "6", State: state, JobTimes: cli.JobTimes{Submitted: submitted, Started: started, Ended: ended}}
	}
	first, again, done := run("REQUEUED", 97, 99, 101), run("PENDING", 103, 0, 0), run("COMPLETED", 103, 224, 228)
	at := func(seconds int64) queue.Ref { return queue.Ref{JobID: "6", Submitted: time.Unix(seconds, 0)} }

	require.Equal(t, at(103).Submitted.Unix(), lastRun([]cli.Job{first, again}, at(97)).Submitted.Unix())
	require.Equal(t, at(103).Submitted.Unix(), lastRun([]cli.Job{done, first}, at(103)).Submitted.Unix())
	other := run("COMPLETED", 500, 501, 502) // slurmctld lost its state and gave the id again
	require.Equal(t, int64(103), lastRun([]cli.Job{first, done, other}, at(97)).Submitted.Unix())

	require.Equal(t, int64(97), lastRun([]cli.Job{run("NODE_FAIL", 97, 99, 101), other}, at(97)).Submitted.Unix(),
		"the id is that of another job now")

	for _, records := range [][]cli.Job{{first, done}, {done, first}} {
		j := pick(newest(records), queue.Ref{JobID: "6"})
		require.Equal(t, "COMPLETED", j.State)
		require.True(t, j.HasEnded())
	}
	require.True(t, first.HasEnded(), "a record with an end has ended, whatever its state is called")
	require.False(t, pick(newest([]cli.Job{first, again}), queue.Ref{JobID: "6"}).HasEnded())
	held := run("REQUEUED", 97, 99, 101)
	require.Equal(t, "PENDING", newest([]cli.Job{held, run("PENDING", 97, 0, 0)})[0].State,
		"with the same time of submission, the one that waits is newer")
}

// A task is in the entry of its array while it waits, and not when it has ended. A list that is cut off may have it.
func TestTaskIsInTheListThatHasIt(t *testing.T) {
	for printed, want := range map[string]bool{
		"12_[7-9]": false, "12_[1,3,5]": true, "12_[0-20:3%2]": true, "12_[0-20:2]": false, "13_[3]": false, "12_3": true, "12_4": false,
		"12_[1,5,...]": true, "12": false,
	} {
		require.Equal(t, want, names("12_3", printed), printed)
	}
	require.True(t, names("12", "12_[7-9]"))
}

// A heterogeneous job is one job: its first part with the nodes, partitions and resources of all.
func TestHeterogeneousJobIsOne(t *testing.T) {
	part := func(id, partition, node string) cli.Job {
		return cli.Job{ID: id, State: "RUNNING", Partition: partition, Nodes: []string{node}, JobTimes: cli.JobTimes{Submitted: 9},
			JobResources: cli.JobResources{CPUs: 2, GPUs: 1}}
	}
	all := []cli.Job{part("190+1", "low", "gpu-2"), part("190+0", "main", "gpu-1"), part("191", "main", "gpu-3")}
	j := pick(all, queue.Ref{JobID: "190"})
	require.Equal(t, "190", j.ID)
	require.Equal(t, []string{"gpu-1", "gpu-2"}, j.Nodes)
	require.Equal(t, "main,low", j.Partition)
	require.Equal(t, 4, j.CPUs)
	require.Equal(t, []string{"gpu-2"}, pick(all, queue.Ref{JobID: "190+1"}).Nodes)
	require.Equal(t, "190+1", id("190+1"))
	require.Equal(t, "190", called("190+1"))
	require.NoError(t, queue.Ref{JobID: "190+1"}.Check())
	require.Equal(t, "191", pick(all, queue.Ref{JobID: "191"}).ID)

	waits := []cli.Job{part("8+0", "main,low", ""), part("8+1", "low,quick", "")}
	require.Equal(t, "main,low,quick", pick(waits, queue.Ref{JobID: "8"}).Partition)

	files := []cli.JobFiles{{ID: "190+1", Submitted: 9, Output: "slurm-191.out"}, {ID: "190+0", Submitted: 9, Output: "slurm-190.out"}}
	require.Equal(t, 1, filesOf(j, files), "the script of a heterogeneous job runs in its first part")
	require.Equal(t, 0, filesOf(pick(all, queue.Ref{JobID: "190+1"}), files))
}
