package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// The files of a control stack are rendered from typed values only. Equal clusters
// give equal bytes, as a difference would cause a needless restart.

// Files renders all files of the stack except secrets, by path.
func (c *Cluster) Files() (map[string]File, error) {
	all, _, err := c.render()
	return all, err
}

// render is Files with the lines of slurm.conf.
func (c *Cluster) render() (map[string]File, confLines, error) {
	conf, err := c.slurmConf()
	if err != nil {
		return nil, nil, err
	}
	text, err := conf.bytes()
	if err != nil {
		return nil, nil, err
	}
	gres, err := renderGresConf(c.workers)
	if err != nil {
		return nil, nil, err
	}
	accounts, err := c.settled().Accounting() // the list of accounts is for the creation
	if err != nil {
		return nil, nil, err
	}
	dbd, err := c.slurmdbdConf()
	if err != nil {
		return nil, nil, err
	}
	s := c.stack()
	all := map[string]File{
		s.Conf():                    {text, 0o644, ""},
		s.Etc() + "/gres.conf":      {gres, 0o644, ""},
		s.CgroupConf():              {c.cgroupConf(), 0o644, ""},
		s.Etc() + "/plugstack.conf": {[]byte("# No plugins. A file that is not there is complained of.\n"), 0o644, ""},
		s.DBDConf():                 {dbd, 0o600, profile.SlurmUser},
		s.Accounts():                {accounts.LoadFile(), 0o600, ""},
		s.LogRotation():             {s.LogRules(), 0o644, ""},
	}
	switches, err := c.topologyConf()
	if switches != nil {
		all[s.TopologyConf()] = File{switches, 0o644, ""}
	}
	return all, conf.lines, err
}

// File is a file of a control stack. Owner is a user; empty: root.
type File struct {
	Data  []byte
	Mode  uint32
	Owner string // empty: root
}

// lines builds a file of Key=Value lines. It refuses values that could end a line.
type lines struct {
	b     strings.Builder
	lines confLines
	err   error
}

// setAll writes a file of parameters. values has those that depend on the instance.
func (l *lines) setAll(parameters []profile.Parameter, values map[string]string) {
	l.b.WriteString(header)
	for _, p := range parameters {
		if value := cmp.Or(p.Value, values[p.Name]); value != "" {
			l.set(p.Name, value)
		}
	}
}

// set writes a line of Key=Value pairs from key, value, key, value, ….
func (l *lines) set(words ...string) {
	var value strings.Builder
	for i := 0; i < len(words); i += 2 {
		if i > 0 {
			value.WriteString(" " + words[i] + "=")
		}
		value.WriteString(l.checked(words[i], words[i+1]))
	}
	l.add(confLine{words[0], value.String()})
}

func (l *lines) add(line confLine) {
	l.lines = append(l.lines, line)
	l.b.WriteString(line.name + "=" + line.value + "\n")
}

// checked refuses text that a parser would not read as one value. Only values with
// options, such as a=1,b=2, may contain "=".
func (l *lines) checked(key, value string) string {
	optional := slices.Contains([]string{"AuthInfo", "SchedulerParameters", "TRESBillingWeights", "JobAcctGatherFrequency",
		"PreemptParameters"}, key)
	for _, r := range value {
		if r <= ' ' || r > '~' || strings.ContainsRune(`#"'\`, r) || r == '=' && !optional {
			l.fail(fmt.Errorf("%s: the value must not contain %q", key, r))
			return ""
		}
	}
	if value == "" {
		l.fail(fmt.Errorf("%s: the value is empty", key))
	}
	return value
}

func (l *lines) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *lines) bytes() ([]byte, error) {
	if l.err != nil {
		return nil, l.err
	}
	return []byte(l.b.String()), nil
}

const header = "# Written by Berth from the instance's declaration; changes made here are undone.\n"

func (c *Cluster) slurmConf() (*lines, error) {
	s := c.stack()
	if err := s.Valid(); err != nil {
		return nil, err
	}
	control, ok := c.unit.Control()
	if !ok {
		return nil, fmt.Errorf("slurm.conf of %s: the unit has no control plane", c.name)
	}
	set := &c.set
	l := &lines{}
	values := map[string]string{
		"SlurmctldHost":         l.checked("SlurmctldHost", c.at.Hostname) + "(" + l.checked("SlurmctldHost", control.Address) + ")",
		"SlurmctldPort":         fmt.Sprint(c.at.Ports.Slurmctld),
		"FirstJobId":            fmt.Sprint(max(c.at.FirstJob, 1)),
		"AccountingStorageHost": control.Address,
		"AccountingStoragePort": fmt.Sprint(c.at.Ports.Slurmdbd),
	}
	for _, group := range []map[string]string{
		confinement(set), c.Scheduler().Parameters(set.longest()), set.jobParameters(), set.jobDefaults(c.workers), set.nodeParameters(),
		set.Priority.parameters(), set.Preemption.parameters(), set.otherParameters(len(c.workers)), set.programParameters(),
		c.sharingParameters(),
	} {
		maps.Copy(values, group)
	}
	l.setAll(s.SlurmConf(), values)
	for _, m := range c.workers {
		l.node(m)
	}
	if len(c.workers) == 0 {
		l.add(confLine{profile.NodeName, profile.NoNode})
	}
	for _, p := range c.Admitted() {
		l.set(set.partition(p, "UP", c.workers)...)
	}
	for _, p := range c.Partitions()[len(set.Partitions):] {
		// Settings and QoS that it refers to may be gone. It accepts no job.
		p.Default, p.PreemptMode, p.QOS, p.AllowAccounts, p.AllowQOS = false, "", "", nil, nil
		l.set(set.partition(p, "INACTIVE", c.workers)...)
	}
	return l, nil
}

// confinement returns the parameters of slurm.conf that decide whether jobs are confined.
func confinement(set *Config) map[string]string {
	if set.Confinement == ConfinementNone {
		return map[string]string{
			"ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none",
			"JobAcctGatherType": "jobacct_gather/linux", "PrologFlags": "Alloc",
		}
	}
	return map[string]string{
		"ProctrackType": "proctrack/cgroup", "TaskPlugin": "task/cgroup,task/affinity",
		"JobAcctGatherType": "jobacct_gather/cgroup", "PrologFlags": "Contain",
	}
}

func (c *Cluster) cgroupConf() []byte {
	words := []string{"CgroupPlugin=autodetect"}
	if c.set.Confinement == confinementCgroup {
		words = append(words, profile.Confinement()...)
	}
	return []byte(strings.Join(words, "\n") + "\n")
}

// node writes the line of a worker.
func (l *lines) node(m plan.Member) {
	words := []string{profile.NodeName, m.Node, "NodeAddr", m.Address, "CPUs", fmt.Sprint(m.CPUs)}
	if s := m.Shape; s != (schema.Shape{}) {
		words = append(words, "Sockets", fmt.Sprint(s.Sockets), "CoresPerSocket", fmt.Sprint(s.CoresPerSocket), "ThreadsPerCore",
			fmt.Sprint(s.ThreadsPerCore))
	}
	words = append(words, "RealMemory", fmt.Sprint(m.MemoryMiB))
	if gres := gresOf(m); gres != "" {
		words = append(words, "Gres", gres)
	}
	l.set(append(words, "Feature", memberFeatures(m))...)
}

// renderGresConf returns gres.conf for workers. The error names a node whose device files are not valid.
func renderGresConf(workers []plan.Member) ([]byte, error) {
	l := &lines{}
	l.b.WriteString(header)
	for _, m := range workers {
		for _, g := range m.GPUs {
			if _, err := g.DeviceFiles(); err != nil {
				return nil, fmt.Errorf("gres.conf: node %s: %w", m.Node, err)
			}
			// Without NodeName, slurmd would exit on every node that lacks the devices.
			l.set("NodeName", m.Node, "Name", "gpu", "Type", g.Type, "File", g.Devices)
		}
	}
	return l.bytes()
}

func (c *Cluster) slurmdbdConf() ([]byte, error) {
	hidden := slices.DeleteFunc(slices.Clone(c.set.PrivateData),
		func(kind string) bool { return !slices.Contains(profile.PrivateRecords(), kind) })
	values := c.set.Retention.values()
	values["DbdPort"], values["PrivateData"] = fmt.Sprint(c.at.Ports.Slurmdbd), strings.Join(hidden, ",")
	l := &lines{}
	l.setAll(c.stack().SlurmdbdConf(), values)
	return l.bytes()
}

// CheckUser returns an error for a user whose name or uid Berth gives to no person.
func CheckUser(u schema.UnixUser) error {
	if !profile.IsUser(u.Name) || !profile.IsUID(u.UID) {
		return fmt.Errorf("user %q with uid %d is not an account of a person", u.Name, u.UID)
	}
	return nil
}

// gresOf returns the GPUs of a member as the Gres of its node.
func gresOf(m plan.Member) string {
	var words []string
	for _, g := range m.GPUs {
		words = append(words, fmt.Sprintf("gpu:%s:%d", g.Type, g.Count))
	}
	return strings.Join(words, ",")
}

// memberFeatures returns the features of a member's node for job constraints: its
// role, the project that lends the node, and the types of its GPUs.
func memberFeatures(m plan.Member) string {
	words := []string{m.Role}
	if m.Loan != nil {
		words = append(words, "from_"+m.Loan.ProjectID)
	}
	for _, g := range m.GPUs {
		for _, w := range []string{"gpu", g.Type} {
			if !slices.Contains(words, w) {
				words = append(words, w)
			}
		}
	}
	return strings.Join(words, ",")
}
