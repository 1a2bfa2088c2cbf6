package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes/slurm/profile"
)

// Job is a job as squeue or sacct prints it. Users write Name and Command.
type Job struct {
	ID            string // 12, 12_3 of a task of an array, 12_[4-9] of tasks that wait together
	Raw           string // id of its own that each task of an array has
	State, Reason string
	User, Account string
	Partition     string
	Nodes         []string
	JobTimes
	JobResources
	Name string // its first 128 bytes at slurmctld
	// Command is the path of its script at slurmctld, and the line of its submission at slurmdbd.
	Command string
	Unread  []string // unreadable and therefore unknown fields, such as nodes
}

// unread notes that a part could not be read. It drops the error, which quotes data that a project may not see.
func (j *Job) unread(what string, err error) {
	if err != nil {
		j.Unread = append(j.Unread, what)
	}
}

// JobTimes are in seconds since 1970; 0: not yet.
type JobTimes struct {
	Submitted, Started, Ended int64
	Exit                      string // exit status and signal, such as 1:0
}

// JobResources are those that a job has. A job that waits has only its time limit.
type JobResources struct {
	CPUs, GPUs, MemoryMiB int
	Minutes               int // its time limit; 0: none
}

// JobFiles says where a job wrote. Users write both.
type JobFiles struct {
	ID        string
	Submitted int64
	// Output is a path with patterns as in sbatch(1); "": unknown. One that is not absolute is below WorkDir.
	Output, WorkDir string
}

// Lost is the state of a job that slurmctld accepted and does not have any more. It has not ended: nobody knows what became of it.
const Lost = "LOST"

// HasEnded reports whether the job has ended: every record with an end has, in any state.
func (j *Job) HasEnded() bool {
	return j.Ended > 0 || slices.Contains([]string{"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL",
		"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}, j.State)
}

// The numbers of values of a job in squeue and in sacct, each followed by the separator.
const (
	queueColumns   = 16
	accountColumns = 17
)

// QueueJobs returns the query for jobs that slurmctld has, with the arguments of
// profile.QueueJobsArgs: each value ends with separator, which no user can guess.
func QueueJobs(separator string) Query[[]Job] {
	return Query[[]Job]{"squeue", nil, func(a Answer) ([]Job, error) {
		// squeue fails if its only filter is the id of a job that slurmctld does not have.
		if a.Exit != 0 && strings.Contains(string(a.Stderr), "Invalid job id specified") {
			return nil, nil
		}
		if a.Exit != 0 {
			return nil, a.failure()
		}
		return decodeJobs(a.Stdout, separator, queueColumns, queuedJob)
	}}
}

// QueueFiles returns the query where jobs at slurmctld write, with the arguments of profile.QueueFilesArgs.
func QueueFiles(separator string) Query[[]JobFiles] {
	q := QueueJobs(separator)
	return Query[[]JobFiles]{q.Program, nil, func(a Answer) ([]JobFiles, error) {
		if a.Exit != 0 {
			_, err := q.Decode(a)
			return nil, err
		}
		return decodeFiles(a.Stdout, separator, func(output string) string { return output })
	}}
}

// AccountedFiles returns the query where jobs at slurmdbd wrote, with those of profile.AccountedFilesArgs. It knows the
// output only of what Berth submitted, with an option for it.
func AccountedFiles(separator string) Query[[]JobFiles] {
	return query(func(out []byte) ([]JobFiles, error) { return decodeFiles(out, separator, submittedOutput) }, "sacct")
}

// submittedOutput returns the path that Berth gave to sbatch, of the line of a submission. Other lines may have blanks
// in any word.
func submittedOutput(line string) string {
	if _, isOurs := profile.ScriptOf(line); isOurs {
		for _, word := range strings.Fields(line) {
			if path, ok := strings.CutPrefix(word, "--output="); ok {
				return path
			}
		}
	}
	return ""
}

func decodeFiles(out []byte, separator string, output func(string) string) (all []JobFiles, err error) {
	rows, err := table(out, separator, 4)
	for _, v := range rows {
		f := JobFiles{ID: v[0], WorkDir: given(v[3]), Output: output(given(v[2]))}
		if f.Submitted, err = seconds(v[1]); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, err
}

// QueueIDs returns the query for the ids of jobs at slurmctld, with those of profile.QueueIDsArgs.
func QueueIDs() Query[[]string] { return query(decodeIDs, "squeue") }

// AccountedIDs returns the query for the ids of jobs at slurmdbd, with those of profile.AccountedIDsArgs.
func AccountedIDs() Query[[]string] { return query(decodeIDs, "sacct") }

// jobID matches the id of a job or a task. The suffix of a part (12+1) and of waiting tasks (12_[3-5]) is not in its group.
var jobID = regexp.MustCompile(`^([0-9]+(?:_[0-9]+)?)(?:_\[.*|\+.*)?$`)

func decodeIDs(out []byte) (ids []string, err error) {
	for line := range strings.FieldsSeq(string(out)) {
		m := jobID.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%q is not the id of a job", line)
		}
		ids = append(ids, m[1])
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// AccountedJobs returns the query for jobs that slurmdbd has, with those of profile.AccountedJobsArgs.
func AccountedJobs(separator string) Query[[]Job] {
	return query(func(out []byte) ([]Job, error) { return decodeJobs(out, separator, accountColumns, accountedJob) }, "sacct")
}

// table splits an answer into the values of each job, which separator ends.
func table(out []byte, separator string, columns int) ([][]string, error) {
	values := strings.Split(string(out), separator)
	if rest := values[len(values)-1]; rest != "" && rest != "\n" || len(values)%columns != 1 {
		return nil, errors.New("the answer ends within a job")
	}
	rows := make([][]string, 0, len(values)/columns)
	for v := range slices.Chunk(values[:len(values)-1], columns) {
		if len(rows) > 0 {
			var ok bool
			if v[0], ok = strings.CutPrefix(v[0], "\n"); !ok {
				return nil, fmt.Errorf("want a line for each job, got %q", v[0])
			}
		}
		rows = append(rows, v)
	}
	return rows, nil
}

func decodeJobs(out []byte, separator string, columns int, decode func([]string) Job) ([]Job, error) {
	rows, err := table(out, separator, columns)
	if err != nil {
		return nil, err
	}
	jobs := make([]Job, 0, len(rows))
	for _, v := range rows {
		j := decode(v) // a job that cannot be read fully stays in the list, and hides no other one
		if j.ID == "" || j.State == "" || j.Submitted == 0 {
			return nil, fmt.Errorf("job %q: it has no id, state or time of submission", v[0])
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func queuedJob(v []string) Job {
	j := job(v)
	var err error
	j.Minutes, err = minutes(v[8])
	j.unread("time limit", err)
	if status, err := strconv.Atoi(j.Exit); err == nil { // of wait(2); sacct has exit status and signal
		if signal := status & 0x7f; signal != 0 {
			j.Exit = fmt.Sprintf("0:%d", signal) // a process that a signal ended has no exit status
		} else {
			j.Exit = fmt.Sprintf("%d:0", status>>8)
		}
	}
	j.Name, j.Command = strings.TrimRight(v[13], " "), given(strings.TrimRight(v[14], " "))
	if ended := j.Ended; ended > 0 { // that of a job that runs is expected
		if j.Ended = 0; j.HasEnded() {
			j.Ended = ended
		}
	}
	return j
}

func accountedJob(v []string) Job {
	j := job(v)
	if n, err := strconv.Atoi(v[8]); err == nil { // otherwise UNLIMITED or Partition_Limit
		j.Minutes = n
	}
	// The mark of an array is on all its tasks. Those that are ended with it have their start as their end.
	if v[16] == profile.LostComment && j.Ended <= j.Started {
		j.State, j.Ended = Lost, 0
	}
	return j
}

// job decodes the values that squeue and sacct print in the same way.
func job(v []string) Job {
	state, _, _ := strings.Cut(v[1], " ") // CANCELLED by 1000
	j := Job{
		ID: v[0], Raw: v[15], State: state, Reason: given(v[12]), User: v[2], Account: v[3], Partition: v[4],
		JobTimes: JobTimes{Exit: v[11]}, Name: v[13], Command: v[14],
	}
	for i, into := range []*int64{&j.Submitted, &j.Started, &j.Ended} {
		var err error
		*into, err = seconds(v[5+i])
		j.unread([]string{"submission", "start", "end"}[i], err)
	}
	if slices.Contains([]string{"PENDING", "CONFIGURING"}, j.State) {
		j.Started = 0 // an estimate
	}
	j.Nodes = []string{}
	if !slices.Contains([]string{"", "(null)", "None assigned"}, v[9]) {
		nodes, err := hostnames(v[9])
		j.Nodes = append(j.Nodes, nodes...)
		j.unread("nodes", err)
	}
	r := TRES{}
	j.unread("resources", r.read(v[10]))
	j.CPUs, j.GPUs, j.MemoryMiB = r.CPUs, r.GPUs, r.MemoryMiB
	return j
}

// given returns a value, or "" for a placeholder that Slurm prints instead of an empty one.
func given(text string) string {
	if slices.Contains([]string{"(null)", "None", "N/A"}, text) {
		return ""
	}
	return text
}
