package jobs

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema"
	"berth/schema/queue"
)

// Output implements runtimes.Queue. It reads the file on the job's first node, if it is a regular file of the job's user.
func (q *Queue) Output(ctx context.Context, at runtimes.QueueScope, ref queue.Ref, limit int) (queue.Output, error) {
	c, j, err := q.find(ctx, at, ref)
	if err != nil {
		return queue.Output{}, err
	}
	i := slices.IndexFunc(c.Unit.Effective.Users, func(u schema.UnixUser) bool { return u.Name == j.User })
	switch {
	case len(j.Nodes) == 0 && slices.Contains(j.Unread, "nodes"):
		return queue.Output{}, fmt.Errorf("%w: the nodes of job %s are not known", queue.ErrUnavailable, j.ID)
	case len(j.Nodes) == 0:
		return queue.Output{}, nil // it waits
	case i < 0:
		return queue.Output{}, fmt.Errorf("%w: %s, who submitted the job, is not a user of the unit any more", queue.ErrDenied, j.User)
	}
	k := memberOn(c.Unit, j.Nodes[0])
	if k < 0 {
		return queue.Output{}, fmt.Errorf("%w: the node of job %s left the unit", queue.ErrNoOutput, j.ID)
	}
	files, err := c.files(ctx, j)
	if err != nil {
		return queue.Output{}, err
	}
	path := outputPath(j, files, c.Unit.Effective.SoftwareVersion)
	if !profile.IsOutputFile(path) {
		return queue.Output{},
			fmt.Errorf("%w: the path of the output of job %s has control characters, is not UTF-8, or has more than 500 bytes: read the "+
				"file yourself", queue.ErrNoOutput, j.ID)
	}
	user, member := c.Unit.Effective.Users[i], c.Unit.Members[k]
	as := func(program string, args ...string) (runtimes.Result, error) {
		op := runtimes.Op{Run: &runtimes.Run{
			Program: program, Args: args, As: &runtimes.Person{Name: user.Name, UID: user.UID}, TimeoutMS: int(c.o.Timeout.Milliseconds()),
			AllowExit: true,
		}}
		res, err := c.do(ctx, c.o.Hosts.Host(member), op)
		if err != nil {
			return runtimes.Result{}, err
		}
		return res[0], nil
	}
	res, err := as("find", profile.SizeArgs(path, user.UID)...)
	if err != nil {
		return queue.Output{}, err
	}
	size, err := strconv.ParseInt(string(res.Data), 10, 64)
	switch {
	case res.Exit != 0:
		class := queue.ErrUnavailable
		if text := message(res); strings.Contains(text, "No such file") || strings.Contains(text, "Permission denied") ||
			strings.Contains(text, "Not a directory") {
			class = queue.ErrNoOutput
		}
		return queue.Output{}, fmt.Errorf("%w: job %s on %s: %s", class, j.ID, member.Name,
			c.withoutHosts(strings.TrimPrefix(message(res), "find: ")))
	case err != nil:
		return queue.Output{}, fmt.Errorf("%w: %s of job %s on %s is not a regular file of %s", queue.ErrNoOutput, path, j.ID, member.Name,
			user.Name)
	}
	skip := max(0, size-int64(limit))
	if res, err = as("dd", profile.ReadArgs(path, skip, int64(limit))...); err == nil && res.Exit != 0 {
		err = fmt.Errorf("%w: job %s on %s: %s", queue.ErrUnavailable, j.ID, member.Name, c.withoutHosts(message(res)))
	}
	return queue.Output{Text: res.Data, Truncated: skip > 0}, err
}

// files returns where a job wrote: from slurmctld, else from slurmdbd.
func (c *cluster) files(ctx context.Context, j *cli.Job) (cli.JobFiles, error) {
	for _, ask := range []asked[[]cli.JobFiles]{c.queuedFiles(called(id(j.ID))), c.accountedFiles(called(id(j.ID)))} {
		res, err := c.do(ctx, c.host, ask.op)
		if err != nil {
			return cli.JobFiles{}, err
		}
		all, err := decode(c, ask, res[0])
		if err != nil {
			return cli.JobFiles{}, err
		}
		if k := filesOf(j, all); k >= 0 {
			return all[k], nil
		}
	}
	return cli.JobFiles{}, fmt.Errorf("%w: the accounting does not have where job %s wrote", queue.ErrNoOutput, j.ID)
}

// filesOf returns the index of the files of a job, or -1. squeue sorts by partition, so another part may come before the first.
func filesOf(j *cli.Job, all []cli.JobFiles) int {
	return slices.IndexFunc(all, func(f cli.JobFiles) bool {
		return represents(id(j.ID), f.ID) && f.Submitted == j.Submitted && f.Output != ""
	})
}

// pattern is a part of a file name that sbatch(1) replaces, with the least number of digits of a number.
var pattern = regexp.MustCompile(`%(\d*)([%AabJjNnstux])`)

// outputPath returns the path of a job's output, without the .. that berth-host does not take.
func outputPath(j *cli.Job, files cli.JobFiles, version string) string {
	return filepath.Clean(expanded(j, files, version))
}

// expanded expands the patterns of sbatch(1) in the path of a job's output, as slurmd of a version does for its batch
// script.
func expanded(j *cli.Job, files cli.JobFiles, version string) string {
	array, task, isTask := strings.Cut(j.ID, "_")
	path, dir := files.Output, files.WorkDir
	if isTask && slices.Contains([]string{dir + "/" + outputName(array), dir + "/" + outputName(j.Raw)}, path) {
		path = outputName("%A_%a") // squeue of 22.05 prints the default name of a single job
	}
	if !strings.HasPrefix(path, "/") {
		path = dir + "/" + path
	}
	if strings.Contains(path, "\\") { // nothing is replaced
		return strings.ReplaceAll(path, "\\", "")
	}
	node := ""
	if len(j.Nodes) > 0 {
		node, _, _ = strings.Cut(j.Nodes[0], ".")
	}
	if !isTask {
		array, task = whole(j.ID), noTask
	}
	index, _ := strconv.ParseInt(task, 10, 64)
	values := map[string]string{
		"%": "%", "A": array, "a": task, "b": strconv.FormatInt(index%10, 10), "J": j.Raw, "j": j.Raw, "N": node, "n": "0", "s": "batch",
		"t": "0", "u": j.User, "x": j.Name,
	}
	return pattern.ReplaceAllStringFunc(path, func(found string) string {
		parts := pattern.FindStringSubmatch(found)
		width, _ := strconv.Atoi(parts[1])
		value := values[parts[2]]
		if parts[2] == "b" && strings.HasPrefix(version, "22.") { // it lacks this pattern, and removes unknown ones
			return strings.Repeat("%", max(0, 1-len(parts[1]))) + parts[1] + "b"
		}
		if _, err := strconv.Atoi(value); err == nil {
			return strings.Repeat("0", max(0, min(width, 10)-len(value))) + value
		}
		return value
	})
}

// noTask is the task number of a job outside an array (NO_VAL in slurm.h).
const noTask = "4294967294"

// outputName is the file that sbatch writes without an option, in the job's directory.
func outputName(id string) string { return "slurm-" + id + ".out" }
