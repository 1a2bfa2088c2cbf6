package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// lines refuses a text that ends within a line.
func lines[T any](decode func([]byte) (T, error)) func([]byte) (T, error) {
	return func(out []byte) (T, error) {
		if len(out) == 0 || out[len(out)-1] != '\n' {
			var none T
			return none, errors.New("the answer is empty or ends within a line")
		}
		return decode(out)
	}
}

const queueHeading = "JOBID ST UID PARTITION"

func decodeQueue(out []byte) ([]Queued, error) {
	heading, rest, _ := strings.Cut(string(out), "\n")
	if strings.TrimSpace(heading) != queueHeading {
		return nil, fmt.Errorf("want the heading %q, got %q", queueHeading, heading)
	}
	var jobs []Queued
	for line := range strings.Lines(rest) {
		words := strings.Fields(line)
		if len(words) != 4 {
			return nil, fmt.Errorf("want id, state, user and partitions, got %q", strings.TrimSpace(line))
		}
		uid, err := strconv.Atoi(words[2])
		if err != nil {
			return nil, fmt.Errorf("%q is not a user id", words[2])
		}
		id, tasks, waitTogether := strings.Cut(words[0], "_[")
		all := []string{id}
		if waitTogether {
			tasks, _, _ = strings.Cut(strings.TrimSuffix(tasks, "]"), "%") // how many run at once
			all = taskIDs(id, tasks)
		}
		jobs = append(jobs, Queued{ID: id, Tasks: all, State: words[1], UID: uid, Partitions: strings.Split(words[3], ",")})
	}
	return jobs, nil
}

// taskIDs returns ids of an array for a list of its tasks as squeue prints it: 1,3-9 or 1-295:7. scontrol takes lists and
// ranges without a step, and berth-host no longer ones than maxTaskList. It returns none for a list that squeue cut off.
// squeue --array of 22.05 leaves out the last task of a step.
func taskIDs(array, list string) (ids []string) {
	if strings.Contains(list, ".") {
		return nil
	}
	if !strings.Contains(list, ":") {
		return []string{array + "_[" + list + "]"}
	}
	var numbers []string
	for part := range strings.SplitSeq(list, ",") {
		from, to, by, err := taskSpan(part)
		if err != nil || (to-from)/by > maxHostnames {
			return nil
		}
		for n := from; n <= to; n += by {
			numbers = append(numbers, strconv.Itoa(n))
		}
	}
	for some := range slices.Chunk(numbers, maxTaskList/8) {
		ids = append(ids, array+"_["+strings.Join(some, ",")+"]")
	}
	return ids
}

// maxTaskList is the length in bytes of the longest list of tasks in an id; a number of a task has up to 7 digits.
const maxTaskList = 100

const endedHeading = "JOBID|END_TIME|NODELIST|"

// decodeEnded leaves out jobs that had no nodes, as they never ran, and those that wait again: they are completing,
// and have no end.
func decodeEnded(out []byte) ([]EndedJob, error) {
	heading, rest, _ := strings.Cut(string(out), "\n")
	if heading = strings.TrimSpace(heading); heading != endedHeading {
		return nil, fmt.Errorf("want the heading %q, got %q", endedHeading, heading)
	}
	var jobs []EndedJob
	for line := range strings.Lines(rest) {
		words := strings.Split(strings.TrimSpace(line), "|")
		if len(words) != 4 || words[3] != "" {
			return nil, fmt.Errorf("want %q, got %q", heading, strings.TrimSpace(line))
		}
		if words[2] == "" {
			continue
		}
		id, err := strconv.Atoi(words[0])
		ended, e := seconds(words[1])
		if err = cmp.Or(err, e); err != nil {
			return nil, fmt.Errorf("job %q: %w", strings.TrimSpace(line), err)
		}
		if ended > 0 {
			jobs = append(jobs, EndedJob{id, ended})
		}
	}
	return jobs, nil
}

const snapshotHeading = "JOBID|JOBID|ST|USER|ACCOUNT|QOS|PARTITION|NODELIST|TRES_ALLOC|" +
	"START_TIME|TIME_LIMIT|REQ_NODES|REASON|MIN_CPUS|MIN_MEMORY|TRES_PER_NODE|FEATURES|"

func decodeSnapshot(out []byte) ([]QueuedJob, error) {
	heading, rest, _ := strings.Cut(string(out), "\n")
	heading = strings.TrimSpace(heading)
	if heading != snapshotHeading {
		return nil, fmt.Errorf("want the heading %q, got %q", snapshotHeading, heading)
	}
	columns := strings.Count(heading, "|")
	var jobs []QueuedJob
	for line := range strings.Lines(rest) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if extra := len(words) - columns - 1; extra > 0 { // of alternative features
			words = append(words[:columns-1], strings.Join(words[columns-1:columns+extra], "|"), words[columns+extra])
		}
		if len(words) != columns+1 || words[0] == "" || words[1] == "" || words[columns] != "" {
			return nil, fmt.Errorf("want %q, got %q", heading, strings.TrimSpace(line))
		}
		jobs = append(jobs, snapshotJob(words[:columns]))
	}
	return jobs, nil
}

const excludedHeading = "JOBID EXC_NODES"

// NodeList is a list of nodes as Slurm writes it, such as w[1-3,7].
type NodeList string

// Names returns the nodes of the list.
func (l NodeList) Names() ([]string, error) { return hostnames(string(l)) }

func decodeExcluded(out []byte) (map[string]NodeList, error) {
	heading, rest, _ := strings.Cut(string(out), "\n")
	if strings.TrimSpace(heading) != excludedHeading {
		return nil, fmt.Errorf("want the heading %q, got %q", excludedHeading, heading)
	}
	excluded := map[string]NodeList{}
	for line := range strings.Lines(rest) {
		job, list, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if list = given(strings.TrimSpace(list)); list != "" {
			excluded[job] = NodeList(list)
		}
	}
	return excluded, nil
}

// snapshotJob reads all readable fields: a job with an unreadable field hides no other one.
func snapshotJob(words []string) QueuedJob {
	nodes, err := hostnames(words[7])
	named, err2 := hostnames(words[11])
	slices.Sort(named)
	asked := TRES{}
	each, err4 := eachNode(words[13], words[14], words[15], words[16])
	tasks, err3 := taskCount(words[0])
	errs := []error{err, err2, err3, err4, asked.read(words[8])}
	job := QueuedJob{
		ID: words[0], Raw: words[1], Tasks: tasks, State: words[2], User: words[3], Account: words[4], QoS: words[5],
		Partitions: splitList(words[6]), Nodes: nodes,
		Reason: given(words[12]),
		Asks:   Asked{GPUs: asked.GPUs, CPUs: asked.CPUs, Nodes: nodesAsked(words[8]), Named: named, Each: each},
	}
	if !job.Pending() { // otherwise an estimate
		job.Started, err = seconds(words[9])
		errs = append(errs, err)
	}
	job.Minutes, err = minutes(words[10])
	errs = append(errs, err)
	job.Unread = errors.Join(errs...) != nil
	return job
}

// eachNode reads what each node of a job must have. The GPUs are gres:gpu:a100:2 to 22.05, and gres/gpu:a100:2 from 23.02 on.
func eachNode(cpus, memory, tres, features string) (e EachNode, err error) {
	if e.CPUs, err = amount(cpus, ""); err != nil {
		return e, fmt.Errorf("CPUs of a node: %w", err)
	}
	if e.MemoryMiB, err = amount(memory, "M"); err != nil {
		return e, fmt.Errorf("memory of a node: %w", err)
	}
	for entry := range strings.SplitSeq(tres, ",") {
		name, isGPU := strings.CutPrefix(strings.Replace(entry, "gres:", "gres/", 1), "gres/gpu")
		parts := strings.Split(name, ":")
		switch {
		case !isGPU || name != "" && name[0] != ':':
			continue
		case len(parts) > 2:
			e.GPUType = parts[1]
		}
		if e.GPUs, err = amount(parts[len(parts)-1], ""); name == "" {
			e.GPUs, err = 1, nil
		} else if err != nil { // a type without a count
			e.GPUs, e.GPUType, err = 1, parts[len(parts)-1], nil
		}
	}
	if features = given(features); features != "" && !strings.ContainsAny(features, "|[]()*!") {
		e.Features = strings.FieldsFunc(features, func(r rune) bool { return r == '&' || r == ',' })
		slices.Sort(e.Features)
	}
	return e, nil
}

// nodesAsked returns the number of nodes in a list of trackable resources: cpu=4,node=2; 0: it is not there.
func nodesAsked(list string) int {
	for entry := range strings.SplitSeq(list, ",") {
		if n, ok := strings.CutPrefix(entry, "node="); ok {
			count, _ := strconv.Atoi(n)
			return count
		}
	}
	return 0
}

// taskCount returns the number of tasks of an array in an id of squeue such as 12_[1,3-9%2] or 12_[0-20:4]; otherwise 1.
func taskCount(id string) (int, error) {
	_, list, together := strings.Cut(id, "_[")
	if !together {
		return 1, nil
	}
	list, _, _ = strings.Cut(strings.TrimSuffix(list, "]"), "%") // how many run at once
	sum := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, by, err := taskSpan(part)
		if err != nil {
			return max(sum, 1), err
		}
		sum += (to-from)/by + 1
	}
	return sum, nil
}

// HasTask reports whether tasks of an array that wait together, as squeue prints them, have the one of an id such as 12_3. A
// list that squeue cut off may have it.
func HasTask(printed, id string) bool {
	array, list, together := strings.Cut(printed, "_[")
	of, number, isTask := strings.Cut(id, "_")
	n, err := strconv.Atoi(number)
	if !together || !isTask || of != array || err != nil {
		return false
	}
	list, _, _ = strings.Cut(strings.TrimSuffix(list, "]"), "%")
	for part := range strings.SplitSeq(list, ",") {
		from, to, by, err := taskSpan(part)
		if err != nil || n >= from && n <= to && (n-from)%by == 0 {
			return true
		}
	}
	return false
}

// taskSpan reads a part of a list of tasks: 7, 3-9, or 1-295:7 with a step.
func taskSpan(part string) (from, to, by int, err error) {
	span, step, _ := strings.Cut(part, ":")
	first, last, isRange := strings.Cut(span, "-")
	if !isRange {
		last = first
	}
	from, err = strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	by, err3 := strconv.Atoi(cmp.Or(step, "1"))
	if cmp.Or(err, err2, err3) != nil || by < 1 || to < from {
		return 0, 0, 0, fmt.Errorf("%q is not a range of tasks", part)
	}
	return from, to, by, nil
}

// seconds returns a time since 1970; 0 for one that is not there.
func seconds(text string) (int64, error) {
	if slices.Contains([]string{"", "N/A", "NONE", "None", "Unknown"}, text) {
		return 0, nil
	}
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time in seconds", text)
	}
	return at, nil
}

// quantity is a number as Slurm prints it: 12, 100M, 1.50T, or 4Gn for each node and 4Gc for each CPU.
var quantity = regexp.MustCompile(`^(\d{1,12}(?:\.\d{1,6})?)([KMGTPE]?)[nc]?$`)

// amount returns a number in a unit, such as M for memory in MiB, rounded up; "": a plain count.
func amount(text, unit string) (int, error) {
	const units = "KMGTPE"
	parts := quantity.FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	n, _ := strconv.ParseFloat(parts[1], 64) // the pattern has a number
	steps := 0
	if parts[2] != "" {
		steps = strings.Index(units, parts[2]) - strings.Index(units, unit)
		if unit == "" {
			steps = strings.Index(units, parts[2]) + 1
		}
	}
	if n = math.Ceil(n * math.Pow(1024, float64(steps))); n > math.MaxInt32 {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return int(n), nil
}

// timeLimit is a time limit as Slurm prints it: 30:00, 2:00:00 or 1-02:00:00.
var timeLimit = regexp.MustCompile(`^(?:(?:(\d+)-)?(\d+):)?(\d+):\d\d$`)

// minutes returns a time limit without its seconds, which no limit of a job has; 0: none.
func minutes(limit string) (int, error) {
	if slices.Contains([]string{"UNLIMITED", "NOT_SET", "INVALID"}, limit) {
		return 0, nil
	}
	parts := timeLimit.FindStringSubmatch(limit)
	if parts == nil || len(limit) > len("99999-23:59:59") {
		return 0, fmt.Errorf("%q is not a time limit", limit)
	}
	all := 0
	for i, factor := range []int{24 * 60, 60, 1} {
		n, _ := strconv.Atoi(parts[i+1]) // "" is 0
		all += n * factor
	}
	return all, nil
}

// maxHostnames limits the names in the expansion of a list of nodes.
const maxHostnames = 100_000

// hostnames returns the names in a list of nodes as Slurm prints it: gpu-[1-3,07],login.
func hostnames(list string) ([]string, error) {
	var names []string
	for list != "" {
		end := strings.IndexAny(list, ",[")
		if end < 0 || list[end] == ',' {
			name, rest, _ := strings.Cut(list, ",")
			names, list = append(names, name), rest
			continue
		}
		prefix := list[:end]
		ranges, rest, ok := strings.Cut(list[end+1:], "]")
		if !ok || rest != "" && rest[0] != ',' {
			return nil, fmt.Errorf("%q is not a list of nodes", list)
		}
		for part := range strings.SplitSeq(ranges, ",") {
			some, err := numbered(prefix, part, maxHostnames-len(names))
			if err != nil {
				return nil, err
			}
			names = append(names, some...)
		}
		list = strings.TrimPrefix(rest, ",")
	}
	return names, nil
}

// numbered returns the names of a range of nodes, such as 07-12. most limits how far its end is above its begin.
func numbered(prefix, part string, most int) (names []string, err error) {
	first, last, isRange := strings.Cut(part, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	if err != nil || err2 != nil || to < from || to-from > most {
		return nil, fmt.Errorf("%q is not a range of nodes", part)
	}
	for n := from; n <= to; n++ {
		names = append(names, fmt.Sprintf("%s%0*d", prefix, len(first), n))
	}
	return names, nil
}

// noPartitions is the answer of a cluster whose partitions were all deleted.
const noPartitions = "No partitions in the system\n"

func decodePartitions(out []byte) ([]Partition, error) {
	var all []Partition
	for line := range strings.Lines(string(out)) {
		for word := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(word, "=")
			if key == "PartitionName" {
				all = append(all, Partition{Name: value, Values: map[string]string{}})
			} else if n := len(all); n > 0 {
				if err := all[n-1].set(key, value); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(all) == 0 && string(out) != noPartitions {
		return nil, errors.New("the answer has no PartitionName")
	}
	for _, p := range all {
		if p.Name == "" || p.State == "" {
			return nil, fmt.Errorf("partition %q has no State", p.Name)
		}
	}
	return all, nil
}

// set takes over a value that scontrol printed.
func (p *Partition) set(key, value string) (err error) {
	p.Values[key] = value
	switch {
	case key == "Nodes" && value != "(null)":
		p.Nodes, err = hostnames(value)
	case key == "State":
		p.State = value
	case key == "AllowAccounts" && value != "ALL":
		p.Accounts = strings.Split(value, ",")
	case slices.Contains([]string{"AllowQos", "DenyQos", "QoS"}, key) && value != "ALL" && value != "N/A":
		p.QoS = append(p.QoS, strings.Split(value, ",")...)
	}
	return err
}

// noReservations is the answer of a cluster without any.
const noReservations = "No reservations in the system\n"

func decodeReservations(out []byte) ([]Reservation, error) {
	if string(out) == noReservations {
		return nil, nil
	}
	var all []Reservation
	for line := range strings.Lines(string(out)) {
		var r Reservation
		var errs [3]error
		for word := range strings.FieldsSeq(line) {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "ReservationName":
				r.Name = value
			case "StartTime":
				r.Start, errs[0] = strconv.ParseInt(value, 10, 64)
			case "EndTime":
				r.End, errs[1] = strconv.ParseInt(value, 10, 64)
			case "Nodes":
				if value != "(null)" { // of licenses only
					r.Nodes, errs[2] = hostnames(value)
				}
			case "Users":
				r.Users = strings.Split(value, ",")
			case "Flags":
				r.Flags = strings.Split(value, ",")
			}
		}
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("reservation %q: %w", r.Name, err)
		}
		if r.Name == "" || r.Start == 0 || r.End == 0 {
			return nil, errors.New("the answer has a reservation without ReservationName, StartTime or EndTime")
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, errors.New("the answer has no ReservationName")
	}
	return all, nil
}

// decodeAgents adds the requests that wait and those that are being sent.
func decodeUnsent(out []byte) (int, error) {
	for line := range strings.Lines(string(out)) {
		if value, ok := strings.CutPrefix(line, "DBD Agent queue size:"); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("want DBD Agent queue size")
}

// decodeClock reads the heading of sdiag: "sdiag output at Tue Nov 24 10:54:51 2026 (1795517691)".
func decodeClock(out []byte) (time.Time, error) {
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, "sdiag output at "); ok {
			_, number, _ := strings.Cut(rest, "(")
			seconds, err := strconv.ParseInt(strings.TrimRight(number, ")\n"), 10, 64)
			return time.Unix(seconds, 0).UTC(), err
		}
	}
	return time.Time{}, errors.New("want sdiag output at TIME (SECONDS)")
}

// decodeReport reads the rows of a report of sreport, which may have none.
func decodeReport(columns int) func(Answer) ([][]string, error) {
	return func(a Answer) (rows [][]string, err error) {
		if a.Exit != 0 {
			return nil, a.failure()
		}
		for line := range strings.Lines(string(a.Stdout)) {
			row := strings.Split(strings.TrimSuffix(line, "\n"), "|")
			if !strings.HasSuffix(line, "\n") || len(row) != columns {
				return nil, fmt.Errorf("%q is no row of a report with %d columns", line, columns)
			}
			rows = append(rows, row)
		}
		return rows, nil
	}
}

// Utilization is the time of a trackable resource of a cluster, in seconds.
type Utilization struct {
	TRES      string // cpu or gres/gpu
	Reported  int64  // all of it
	Allocated int64  // to jobs, and to reservations that charge for it
	Down      int64  // of nodes that are down, also as planned
}

// Idle returns the time that no job had while the nodes were up, also where a job waited for it.
func (u *Utilization) Idle() int64 { return max(0, u.Reported-u.Allocated-u.Down) }

// utilizationColumns are the columns of UtilizedHours (sreport(1), Utilization).
const utilizationColumns = "TresName,Reported,Allocated,Down,PlannedDown"

func decodeUtilization(a Answer) (all []Utilization, err error) {
	rows, err := decodeReport(5)(a)
	for _, row := range rows {
		u := Utilization{TRES: row[0]}
		var planned int64
		for i, into := range []*int64{&u.Reported, &u.Allocated, &u.Down, &planned} {
			if *into, err = strconv.ParseInt(row[i+1], 10, 64); err != nil {
				return nil, fmt.Errorf("row %q of the report Utilization: %w", strings.Join(row, "|"), err)
			}
		}
		u.Down += planned
		all = append(all, u)
	}
	return all, err
}

func decodeAgents(out []byte) (int, error) {
	sum, found := 0, 0
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(line, ":")
		if key != "Agent queue size" && key != "Agent count" {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			return 0, err
		}
		sum, found = sum+n, found+1
	}
	if found != 2 {
		return 0, errors.New("want Agent queue size and Agent count")
	}
	return sum, nil
}

func decodeHardware(out []byte) (Resources, error) {
	found := map[string]int{}
	for word := range strings.FieldsSeq(string(out)) {
		if key, value, ok := strings.Cut(word, "="); ok {
			found[key], _ = strconv.Atoi(value) // 0 for a value that is not a number
		}
	}
	r := Resources{CPUs: found["CPUs"], Memory: found["RealMemory"]}
	if s, c, t := found["Boards"]*found["SocketsPerBoard"], found["CoresPerSocket"], found["ThreadsPerCore"]; s*c*t == r.CPUs {
		r.Sockets, r.CoresPerSocket, r.ThreadsPerCore = s, c, t
	}
	if r.CPUs == 0 || r.Memory == 0 {
		return r, fmt.Errorf("want CPUs and RealMemory, got %q", string(out[:min(len(out), 200)]))
	}
	return r, nil
}

func decodeConfig(out []byte) (Config, error) {
	var c Config
	var hash string
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(line, "=")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "HASH_VAL":
			hash = value
		case "SLURM_VERSION":
			c.Version = value
		case "NEXT_JOB_ID":
			c.NextJob, _ = strconv.Atoi(value)
		}
	}
	switch {
	case hash == "Match":
		c.Matches = true
	case strings.HasPrefix(hash, "Different"):
	default:
		return c, fmt.Errorf("want HASH_VAL = Match or Different, got %q", hash)
	}
	if c.Version == "" {
		return c, errors.New("the answer has no SLURM_VERSION")
	}
	return c, nil
}

// decodeRunaways reads the list, which follows a note and ends with an empty line and a
// question.
func decodeRunaways(out []byte) ([]int, error) {
	if strings.HasPrefix(string(out), "Runaway Jobs: No runaway jobs found") {
		return nil, nil
	}
	_, list, found := strings.Cut(string(out), "\nID\n")
	list, _, ended := strings.Cut(list, "\n\n")
	if !found || !ended || !strings.HasPrefix(string(out), "NOTE: Runaway jobs ") {
		return nil, errors.New("want a list under the heading ID, or that there are no runaway jobs")
	}
	var ids []int
	for line := range strings.Lines(list) {
		id, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || id <= 0 {
			return nil, fmt.Errorf("%q is not a job id", strings.TrimSpace(line))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// runColumns are the columns of Runs, which are the heading too (sacct(1), --format).
const runColumns = "Cluster,JobIDRaw,Submit,Start,End,State,Account,User,AllocTRES,ElapsedRaw,NodeList,Partition,QOS"

func decodeRuns(out []byte) ([]Run, error) {
	heading, rest, _ := strings.Cut(string(out), "\n")
	if heading != strings.ReplaceAll(runColumns, ",", "|") {
		return nil, fmt.Errorf("want the columns %s, got %q", runColumns, heading)
	}
	var all []Run
	for line := range strings.Lines(rest) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(f) != 13 {
			return nil, fmt.Errorf("%q is not a run of a job", line)
		}
		r := Run{Cluster: f[0], Account: f[6], User: f[7], Partition: f[11]}
		if f[12] != "Unknown" { // it was deleted
			r.QoS = f[12]
		}
		r.State, _, _ = strings.Cut(f[5], " ") // CANCELLED by 1000
		var err error
		if r.ID, err = strconv.Atoi(f[1]); err != nil {
			return nil, fmt.Errorf("run %q: %w", strings.TrimSpace(line), err)
		}
		unread := func(what string, err error) {
			if err != nil {
				r.Unread = append(r.Unread, what)
			}
		}
		if f[10] != "None assigned" {
			r.Nodes, err = hostnames(f[10])
			unread("nodes", err)
		}
		for _, field := range []struct {
			what, text string
			into       *int64
		}{{"submission", f[2], &r.Submitted}, {"start", f[3], &r.Started}, {"end", f[4], &r.Ended}, {"elapsed time", f[9], &r.Elapsed}} {
			*field.into, err = seconds(field.text)
			unread(field.what, err)
		}
		unread("resources", r.read(f[8]))
		all = append(all, r)
	}
	return all, nil
}

// read parses allocated resources, such as "billing=1,cpu=1,gres/gpu=2,mem=100M,node=1". With
// --noconvert the memory is in MiB.
func (r *TRES) read(list string) error {
	if slices.Contains([]string{"", "N/A", "(null)"}, list) {
		return nil
	}
	var types []string
	for entry := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(entry, "=")
		into, ok := map[string]*int{"billing": &r.Billing, "cpu": &r.CPUs, "gres/gpu": &r.GPUs, "mem": &r.MemoryMiB}[name]
		if kind, isType := strings.CutPrefix(name, "gres/gpu:"); isType {
			types = append(types, kind)
		}
		if !ok {
			continue
		}
		unit := ""
		if name == "mem" {
			unit = "M"
		}
		var err error
		if *into, err = amount(value, unit); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(types) == 1 {
		r.GPUType = types[0]
	}
	return nil
}

// decodePing reads the line of the primary controller. The exit status is 1 if it is
// down.
func decodePing(a Answer) (bool, error) {
	for line := range strings.Lines(string(a.Stdout)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "Slurmctld(primary) at ") {
			continue
		}
		switch {
		case strings.HasSuffix(line, " is UP") && a.Exit == 0:
			return true, nil
		case strings.HasSuffix(line, " is DOWN") && a.Exit == 1:
			return false, nil
		}
	}
	return false, a.failure()
}

func decodeAssociations(out []byte) ([]Association, error) {
	_, records, ok := strings.Cut(string(out), "\nAssociation Records\n")
	if !ok {
		return nil, errors.New("the answer has no Association Records")
	}
	var all []Association
	for line := range strings.Lines(records) {
		if !strings.HasPrefix(line, "ClusterName=") {
			continue
		}
		_, rest, hasAccount := strings.Cut(line, " Account=")
		account, rest, hasUser := strings.Cut(rest, " UserName=")
		if !hasAccount || !hasUser {
			return nil, fmt.Errorf("want Account and UserName, got %q", strings.TrimSpace(line))
		}
		user, _, isUser := strings.Cut(rest, "(")
		if !isUser {
			user = ""
		}
		all = append(all, Association{Account: account, User: user})
	}
	if len(all) == 0 { // a cluster has at least that of root
		return nil, errors.New("the answer has no association")
	}
	return all, nil
}

func decodeQoSNames(out []byte) ([]string, error) {
	_, records, ok := strings.Cut(string(out), "\nQOS Records\n")
	if !ok {
		return nil, errors.New("the answer has no QOS Records")
	}
	var names []string
	for line := range strings.Lines(records) {
		if name, ok := strings.CutPrefix(line, "QOS="); ok {
			name, _, _ = strings.Cut(name, "(")
			names = append(names, name)
		}
	}
	if len(names) == 0 { // a cluster has at least normal
		return nil, errors.New("the answer has no QoS")
	}
	return names, nil
}

// headings are the headings that sacctmgr prints for the words of format=, the same on
// all releases.
var headings = map[string]string{
	"cluster": "Cluster", "account": "Account", "parentname": "ParentName", "user": "User", "partition": "Partition",
	"fairshare": "Share", "qos": "QOS", "defaultqos": "Def QOS", "priority": "Priority",
	"grpjobs": "GrpJobs", "grpsubmitjobs": "GrpSubmit", "grptres": "GrpTRES", "grptresmins": "GrpTRESMins", "grpwall": "GrpWall",
	"maxjobs": "MaxJobs", "maxsubmitjobs": "MaxSubmit", "maxtresperjob": "MaxTRES", "maxwalldurationperjob": "MaxWall",
	"defaultaccount": "Def Acct", "adminlevel": "Admin",
	"name": "Name", "flags": "Flags", "maxtresperuser": "MaxTRESPU", "maxtresperaccount": "MaxTRESPA",
	"maxjobsperuser": "MaxJobsPU", "maxsubmitjobsperuser": "MaxSubmitPU", "maxwall": "MaxWall",
	"preempt": "Preempt", "preemptmode": "PreemptMode", "usagefactor": "UsageFactor",
	"grpjobsaccrue": "GrpJobsAccrue", "grptresrunmins": "GrpTRESRunMins", "maxjobsaccrue": "MaxJobsAccrue",
	"maxtrespernode":    "MaxTRESPerNode",
	"maxtresminsperjob": "MaxTRESMins", "minpriothresh": "MinPrioThres", "coord": "Coord Accounts",
	"gracetime": "GraceTime", "preemptexempttime": "PreemptExemptTime", "usagethres": "UsageThres", "limitfactor": "LimitFactor",
	"mintresperjob": "MinTRES", "maxtresrunminspu": "MaxTRESRunMinsPU", "maxjobsaccrueperuser": "MaxJobsAccruePU",
	"maxjobsperaccount": "MaxJobsPA", "maxjobsaccrueperaccount": "MaxJobsAccruePA", "maxsubmitjobsperaccount": "MaxSubmitPA",
}

// List returns the query that lists entities of slurmdbd (assoc, user, qos) as rows with
// the columns. where are further arguments, such as cluster=alpha. A column is a key of
// headings.
func List(entity string, where []string, columns ...string) Query[[][]string] {
	args := slices.Concat([]string{"-i", "-P", "list", entity}, where, []string{"format=" + strings.Join(columns, ",")})
	return query(lines(func(out []byte) ([][]string, error) { return decodeTable(out, columns) }), "sacctmgr", args...)
}

func decodeTable(out []byte, columns []string) ([][]string, error) {
	var want []string
	for _, c := range columns {
		h, ok := headings[c]
		if !ok {
			return nil, fmt.Errorf("column %q has no known heading", c)
		}
		want = append(want, h)
	}
	heading, rest, _ := strings.Cut(string(out), "\n")
	if heading != strings.Join(want, "|") {
		return nil, fmt.Errorf("want the heading %q, got %q", strings.Join(want, "|"), heading)
	}
	var rows [][]string
	for line := range strings.Lines(rest) {
		row := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(row) != len(columns) {
			return nil, fmt.Errorf("want %d columns, got %q", len(columns), strings.TrimSpace(line))
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Heading returns the heading of a list with the columns, which are keys of headings.
func Heading(columns ...string) string {
	var words []string
	for _, c := range columns {
		words = append(words, headings[c])
	}
	return strings.Join(words, "|")
}
