package cluster

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"berth/schema"
)

// Config is an instance's config, as config.cue defines it. Where a pointer is nil, slurm.conf has no line of that field.
type Config struct {
	Partitions  []Partition       `json:"partitions"`
	Scheduler   scheduler         `json:"scheduler"`
	Jobs        *jobSettings      `json:"jobs,omitempty"`
	Nodes       *nodeSettings     `json:"nodes,omitempty"`
	Priority    *priority         `json:"priority,omitempty"`
	Preemption  *preemption       `json:"preemption,omitempty"`
	PrivateData []string          `json:"private_data,omitempty"`
	Topology    topology          `json:"topology,omitzero"`
	Account     string            `json:"account,omitempty"` // of the users; empty: MembersAccount
	QoS         []QoS             `json:"qos,omitempty"`
	Options     map[string]option `json:"options,omitempty"`
	hostSettings
	Backup struct {
		Hour int `json:"hour"` // of UTC
		Keep int `json:"keep"` // 0: no backups
	} `json:"backup"`
	Retention    retention     `json:"retention,omitzero"`
	Reservations []reservation `json:"reservations,omitempty"`
}

// hostSettings say how hosts are used. Only a version's parameters have programs.
type hostSettings struct {
	Identity    string       `json:"identity"`
	Confinement string       `json:"confinement,omitempty"`
	HealthCheck *healthCheck `json:"health_check,omitempty"`
	JobPrograms *jobPrograms `json:"job_programs,omitempty"`
}

// retention is the number of months after which slurmdbd removes old records; 0: it keeps them.
type retention struct {
	RecordsMonths int `json:"records_months"`
	UsageMonths   int `json:"usage_months"`
}

// maxRetention is a hundred years, in months.
const maxRetention = 1200

// isShorterThan reports whether slurmdbd removes records that it kept before.
func (r retention) isShorterThan(old retention) bool {
	shorter := func(now, old int) bool { return now != 0 && (old == 0 || now < old) }
	return shorter(r.RecordsMonths, old.RecordsMonths) || shorter(r.UsageMonths, old.UsageMonths)
}

// Partition has the workers of Nodes, or all workers.
type Partition struct {
	Name               string   `json:"name"`
	Nodes              *nodeSel `json:"nodes,omitempty"`
	DefaultTimeMinutes int      `json:"default_time_minutes,omitempty"` // 0: that of jobs
	MaxTimeMinutes     int      `json:"max_time_minutes,omitempty"`     // 0: that of jobs
	Default            bool     `json:"default,omitempty"`
	PriorityTier       *int     `json:"priority_tier,omitempty"`
	AllowAccounts      []string `json:"allow_accounts,omitempty"`
	AllowQOS           []string `json:"allow_qos,omitempty"`
	QOS                string   `json:"qos,omitempty"`
	PreemptMode        string   `json:"preempt_mode,omitempty"`
	Billing            *billing `json:"billing,omitempty"` // nil: that of jobs
}

// nodeSel selects workers that meet each of its lists; an empty list selects all.
type nodeSel struct {
	Roles    []string `json:"roles,omitempty"`
	GPUTypes []string `json:"gpu_types,omitempty"`
	Names    []string `json:"names,omitempty"`
}

// scheduler has the intervals in seconds. With a CycleSeconds of 0, slurmctld looks at the queue each second.
type scheduler struct {
	IntervalSeconds   int `json:"interval_seconds"`
	CycleSeconds      int `json:"cycle_seconds,omitempty"`
	BatchDelaySeconds int `json:"batch_delay_seconds,omitempty"`
	BFMaxJobPart      int `json:"bf_max_job_part,omitempty"`
	BFMaxJobTest      int `json:"bf_max_job_test,omitempty"`
	BFMaxJobUser      int `json:"bf_max_job_user,omitempty"`
	DefaultQueueDepth int `json:"default_queue_depth,omitempty"`
	MaxRPCCount       int `json:"max_rpc_cnt,omitempty"`
	// bfMaxJobAssoc does not come from a config: guaranteed shares need it.
	bfMaxJobAssoc int
}

type jobSettings struct {
	DefaultTimeMinutes    int      `json:"default_time_minutes"`
	MaxTimeMinutes        int      `json:"max_time_minutes"`
	GPUDefaults           string   `json:"gpu_defaults"`
	KillWaitSeconds       int      `json:"kill_wait_seconds"`
	UnkillableStepSeconds int      `json:"unkillable_step_seconds"`
	Billing               *billing `json:"billing,omitempty"`
}

// gpuDefaultsShare is the value of GPUDefaults with which a job gets the share of the node
// with each GPU.
const gpuDefaultsShare = "share"

// billing has the weights of TRESBillingWeights.
type billing struct {
	CPU       int `json:"cpu"`
	MemoryGiB int `json:"memory_gib"`
	GPU       int `json:"gpu"`
}

type nodeSettings struct {
	TimeoutSeconds  int `json:"timeout_seconds"`
	ReturnToService int `json:"return_to_service"`
}

// priority says how the priority of jobs is computed (slurm.conf(5), PriorityType).
type priority struct {
	Type               string          `json:"type"`
	Weights            priorityWeights `json:"weights"`
	DecayHalfLifeHours int             `json:"decay_half_life_hours"`
	MaxAgeHours        int             `json:"max_age_hours"`
}

// priorityBasic is the type by which jobs start in the order of their submission.
const priorityBasic = "basic"

// priorityWeights are the weights of the parts of a priority.
type priorityWeights struct {
	Age       int `json:"age"`
	Fairshare int `json:"fairshare"`
	JobSize   int `json:"job_size"`
	Partition int `json:"partition"`
	QOS       int `json:"qos"`
}

// preemption says which jobs a pending job may preempt: none, those of partitions with a
// lower priority_tier, or those of a QoS that its own QoS preempts.
type preemption struct {
	By            string `json:"by"`
	Mode          string `json:"mode"`
	ExemptMinutes int    `json:"exempt_minutes"`
}

// The values of preemption.By.
const (
	preemptNone      = "none"
	preemptPartition = "partition"
	preemptQOS       = "qos"
)

// topology is a tree of switches.
type topology struct {
	Switches []networkSwitch `json:"switches,omitempty"`
}

// networkSwitch has nodes or other switches.
type networkSwitch struct {
	Name     string   `json:"name"`
	Nodes    []string `json:"nodes,omitempty"`
	Switches []string `json:"switches,omitempty"`
}

// option is the value of a parameter as text. A config has it as a number or as text.
type option string

// UnmarshalJSON implements json.Unmarshaler.
func (o *option) UnmarshalJSON(data []byte) error {
	var number json.Number
	if err := json.Unmarshal(data, &number); err == nil && len(data) > 0 && data[0] != '"' {
		*o = option(number)
		return nil
	}
	return json.Unmarshal(data, (*string)(o))
}

// PartitionNames returns the names of partitions, in their order.
func PartitionNames(list []Partition) []string {
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	return names
}

// The values of Identity: who makes the users' accounts on the hosts.
const (
	IdentityManaged  = "managed"  // Berth
	identityExternal = "external" // a directory service; Berth only checks
)

// The values of Confinement: whether jobs are confined to the CPUs, memory and GPUs that
// they asked for.
const (
	confinementCgroup = "cgroup"
	ConfinementNone   = "none" // accepted by the version's manifest
)

var (
	projectID = regexp.MustCompile(`^[a-z0-9][-a-z0-9]{0,39}\.[a-z0-9][-a-z0-9]{0,39}$`)
)

// Parse reads a config. The estate's loader has checked it and filled in
// defaults. It is checked again because daemons of root read it, and because a person
// can edit a record on a host.
func Parse(raw json.RawMessage) (Config, error) {
	s := Config{hostSettings: hostSettings{Identity: IdentityManaged, Confinement: confinementCgroup}}
	s.Scheduler.IntervalSeconds = 30
	s.Backup.Hour, s.Backup.Keep = 2, 7
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&s); err != nil {
			return s, fmt.Errorf("config: %w", err)
		}
	}
	s.fold()
	if len(s.Partitions) == 0 {
		s.Partitions = []Partition{{Name: "main", Default: true}}
	}
	if problems := s.check(); len(problems) > 0 {
		return s, fmt.Errorf("config.%s: %s", problems[0].Path, problems[0].Message)
	}
	s.setDefaultPartition()
	return s, nil
}

// fold writes the names of QoS and accounts as sacctmgr keeps them, in lower case. So two names that differ
// only in case are one in each check and in each comparison with the cluster.
func (s *Config) fold() {
	lower := func(names []string) {
		for i := range names {
			names[i] = strings.ToLower(names[i])
		}
	}
	s.Account = strings.ToLower(s.Account)
	for i := range s.Partitions {
		p := &s.Partitions[i]
		p.QOS = strings.ToLower(p.QOS)
		lower(p.AllowAccounts)
		lower(p.AllowQOS)
	}
	for i := range s.QoS {
		s.QoS[i].Name = strings.ToLower(s.QoS[i].Name)
		lower(s.QoS[i].Preempts)
	}
}

// UsersAccount returns the account of the users of a unit without attachments.
func (s *Config) UsersAccount() string { return cmp.Or(s.Account, MembersAccount) }

// defaultPartition is the one of jobs that name none.
func (s *Config) defaultPartition() string {
	i := slices.IndexFunc(s.Partitions, func(p Partition) bool { return p.Default })
	return s.Partitions[i].Name // setDefaultPartition made one the default
}

// setDefaultPartition makes the first partition the default if none is.
func (s *Config) setDefaultPartition() {
	for _, p := range s.Partitions {
		if p.Default {
			return
		}
	}
	s.Partitions = append([]Partition{}, s.Partitions...)
	s.Partitions[0].Default = true
}

// maxTime returns the longest time of a job in p in minutes; 0: no limit.
func (s *Config) maxTime(p Partition) int {
	if p.MaxTimeMinutes == 0 && s.Jobs != nil {
		return s.Jobs.MaxTimeMinutes
	}
	return p.MaxTimeMinutes
}

// defaultTime returns the time in minutes of a job in p that names none; 0: the longest
// time.
func (s *Config) defaultTime(p Partition) int {
	minutes := p.DefaultTimeMinutes
	if minutes == 0 && s.Jobs != nil {
		minutes = s.Jobs.DefaultTimeMinutes
	}
	if longest := s.maxTime(p); longest > 0 {
		minutes = min(minutes, longest)
	}
	return minutes
}

// billingOf returns the billing weights of p; nil: none.
func (s *Config) billingOf(p Partition) *billing {
	if p.Billing == nil && s.Jobs != nil {
		return s.Jobs.Billing
	}
	return p.Billing
}

// CheckConfig checks a config with all defaults for a version of the app.
func CheckConfig(v *schema.AppVersion, config json.RawMessage) schema.ConfigFacts {
	var s Config
	if err := json.Unmarshal(config, &s); err != nil {
		return schema.ConfigFacts{Problems: []schema.ConfigProblem{{Message: err.Error()}}}
	}
	s.fold()
	of := configCheck{set: &s, configProblems: s.check()}
	of.version(v)
	of.artifacts(v)
	facts := schema.ConfigFacts{Problems: of.configProblems, NoEffect: s.withoutEffect(), Names: s.names()}
	for i, r := range s.Reservations {
		facts.Ends = append(facts.Ends, schema.ConfigEnd{Path: item("reservations", i), What: "the reservation " + r.Name, At: r.end()})
	}
	return facts
}

// QueueNames returns the names in a config by which a queue map can choose.
func QueueNames(config json.RawMessage) schema.QueueNames {
	s, err := Parse(config)
	if err != nil {
		return schema.QueueNames{}
	}
	names := schema.QueueNames{Partitions: PartitionNames(s.Partitions), Accounts: []string{s.UsersAccount()}, QOS: s.qosNames(),
		Minutes: map[string]int{}}
	for _, p := range s.Partitions {
		if most := s.maxTime(p); most > 0 && !s.hasLongQoS() {
			names.Minutes[p.Name] = most
		}
	}
	return names
}

// names returns the names by which the config selects nodes and users.
func (s *Config) names() (out []schema.ConfigName) {
	add := func(at, sort string, names []string) {
		for i, name := range names {
			out = append(out, schema.ConfigName{Path: item(at, i), Sort: sort, Name: name})
		}
	}
	selects := func(at string, n *nodeSel) {
		if n != nil {
			add(at+".nodes.gpu_types", schema.GPUType, n.GPUTypes)
			add(at+".nodes.names", schema.NodeName, n.Names)
		}
	}
	for i, p := range s.Partitions {
		selects(item("partitions", i), p.Nodes)
		for k, account := range p.AllowAccounts {
			if account != s.UsersAccount() {
				out = append(out, schema.ConfigName{Path: item(item("partitions", i)+".allow_accounts", k), Sort: schema.ProjectName,
					Name: account})
			}
		}
	}
	for i, r := range s.Reservations {
		selects(item("reservations", i), r.Nodes)
	}
	for i, sw := range s.Topology.Switches {
		add(item("topology.switches", i)+".nodes", schema.NodeName, sw.Nodes)
	}
	for i, q := range s.QoS {
		add(item("qos", i)+".users", schema.UserName, q.Users)
		out = append(out, schema.ConfigName{Path: item("qos", i) + ".name", Sort: schema.ReservedName,
			Name: strings.TrimSuffix(q.Name, GuaranteedSuffix)})
	}
	return out
}
