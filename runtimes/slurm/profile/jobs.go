package profile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The columns of jobs in squeue and in sacct, in the same order.
const (
	queueColumns   = "JobArrayID,State,UserName,Account,Partition,SubmitTime,StartTime,EndTime,TimeLimit,NodeList,tres-alloc,exit_code,Reason,Name,Comment,STDOUT,WorkDir,JobID"
	accountColumns = "JobID,State,User,Account,Partition,Submit,Start,End,TimelimitRaw,NodeList,AllocTRES,ExitCode,Reason,JobName,Comment,JobID,WorkDir,JobIDRaw"
)

// separator ends each value. It is random in each call, as users write names, comments and paths of jobs.
var separator = compile(`^[a-z][a-z0-9]{7,15}$`)

// QueueJobsArgs returns the arguments with which squeue prints jobs, each value followed by a
// separator that the caller makes at random.
func QueueJobsArgs(separator string, filter ...string) []string {
	return append([]string{"--noheader", "--all", "--noconvert", "--states=all", "--Format=" + strings.ReplaceAll(queueColumns, ",", ":"+separator+",") + ":" + separator}, filter...)
}

// AccountedJobsArgs returns the arguments with which sacct prints jobs in the same way.
func AccountedJobsArgs(separator string, filter ...string) []string {
	return append([]string{"--noheader", "--allusers", "--duplicates", "--allocations", "--noconvert", "--parsable", "--delimiter=" + separator, "--format=" + accountColumns}, filter...)
}

// jobsQuery reports whether args are those of base with a separator, followed by filters.
func jobsQuery(args []string, base func(string, ...string) []string, at int, filter *expression) bool {
	n := len(base(""))
	if len(args) < n {
		return false
	}
	_, s, _ := strings.Cut(args[at], strings.SplitN(base("")[at], ",", 2)[0])
	s, _, _ = strings.Cut(s, ",")
	return separator.MatchString(s) && slices.Equal(args[:n], base(s)) && !slices.ContainsFunc(args[n:], func(a string) bool { return !filter.MatchString(a) })
}

var (
	queueJobsFilter     = compile(`^--(user=` + UserForm + `|account=[a-z0-9][-a-z0-9_.]{0,127}|jobs=[1-9][0-9]{0,9}(_[0-9]{1,7})?)$`)
	accountedJobsFilter = compile(`^--(user=` + UserForm + `|accounts=[a-z0-9][-a-z0-9_.]{0,127}|jobs=[1-9][0-9]{0,9}(_[0-9]{1,7})?|starttime=uts[0-9]{1,12})$`)
)

func isQueueJobs(args []string) bool {
	return jobsQuery(args, QueueJobsArgs, 4, queueJobsFilter)
}

func isAccountedJobs(args []string) bool {
	return jobsQuery(args, AccountedJobsArgs, 6, accountedJobsFilter)
}

// CancelArgs returns the arguments with which scancel ends a job if it is the user's and, unless
// account is empty, of the account. A task of an array is ended by its id alone, so the caller makes sure
// that it is of the account: with a filter, scancel of 22.05 ends all tasks of the array that wait.
func CancelArgs(id, user, account string) []string {
	if strings.Contains(id, "_") {
		return []string{id}
	}
	args := []string{"--user=" + user}
	if account != "" {
		args = append(args, "--account="+account)
	}
	return append(args, id)
}

var cancelOwned = compile(`^--user=` + UserForm + `( --account=[a-z0-9][-a-z0-9_.]{0,127})? [1-9][0-9]{0,9}$`)

// Both programs run as the owner of a job. Another user may be able to write to the directory of its output, and
// replace the output by a link to a private file of the owner. So neither program follows a link.

// SizeArgs returns the arguments with which find prints the size of a regular file in bytes, if it
// belongs to uid.
func SizeArgs(path string, uid int) []string {
	return []string{"-P", path, "-maxdepth", "0", "-type", "f", "-uid", strconv.Itoa(uid), "-printf", "%s"}
}

// ReadArgs returns the arguments with which dd prints a part of a file.
func ReadArgs(path string, skip, bytes int64) []string {
	return []string{"if=" + path, "iflag=nofollow,nonblock,fullblock,skip_bytes,count_bytes", "status=none", "bs=64K", fmt.Sprintf("skip=%d", skip), fmt.Sprintf("count=%d", bytes)}
}

var (
	outputFile = compile(`^/[^\x00-\x1f\x7f]{1,500}$`)
	readRange  = compile(`^skip=[0-9]{1,15} count=[0-9]{1,7}$`)
)

func isOutputFile(path string) bool {
	return outputFile.MatchString(path) && !strings.Contains(path+"/", "/../")
}

func checkSize(args []string) error {
	if len(args) < 8 || !isOutputFile(args[1]) {
		return errNotAllowed
	}
	if uid, err := strconv.Atoi(args[7]); err != nil || !slices.Equal(args, SizeArgs(args[1], uid)) {
		return errNotAllowed
	}
	return nil
}

func checkRead(args []string) error {
	if len(args) != 6 || !readRange.MatchString(args[4]+" "+args[5]) {
		return errNotAllowed
	}
	path, isInput := strings.CutPrefix(args[0], "if=")
	if !isInput || !isOutputFile(path) || !slices.Equal(args[:4], ReadArgs(path, 0, 0)[:4]) {
		return errNotAllowed
	}
	return nil
}
