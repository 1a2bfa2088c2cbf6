package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/estate"
)

// statusReport is the output of `berth status`; its JSON is a contract.
type statusReport struct {
	Format       string           `json:"format"` // berth.status/v1
	Commit       string           `json:"commit"` // of berth/status
	ConfigCommit string           `json:"config_commit,omitempty"`
	InForce      string           `json:"in_force,omitempty"`  // commit of berth/in-force
	Undecided    int              `json:"undecided,omitempty"` // commits on main after ConfigCommit
	Paused       string           `json:"paused,omitempty"`    // why hosts are not changed
	Frozen       string           `json:"frozen,omitempty"`    // why synchronization is frozen
	Instances    []resourceStatus `json:"instances"`
	Resources    []resourceStatus `json:"resources"` // of other kinds
	Held         []plan.Held      `json:"held"`
	HeldMore     int              `json:"held_more,omitempty"` // held documents that Held leaves out
	Remarks      []string         `json:"remarks,omitempty"`   // on repositories of tenants
	Warnings     []string         `json:"warnings,omitempty"`  // unreadable parts of the status
}

// resourceStatus is the status of one resource, as status, get and describe show it.
type resourceStatus struct {
	Key        schema.Key       `json:"key"`
	Name       string           `json:"name"` // with tenant and project
	App        string           `json:"app,omitempty"`
	Phase      string           `json:"phase"`
	Ready      string           `json:"ready,omitempty"` // True, False or Unknown
	Why        string           `json:"why,omitempty"`   // messages of conditions that need attention, and of retries
	Stalled    bool             `json:"stalled,omitempty"`
	Members    []memberStatus   `json:"members,omitempty"`
	Revision   string           `json:"revision,omitempty"`
	Conditions []plan.Condition `json:"conditions,omitempty"`
}

type memberStatus struct {
	Name  string     `json:"name"`
	Node  string     `json:"node"`
	State plan.State `json:"state,omitempty"`
	Why   string     `json:"placed,omitempty"`
}

func newStatusCmd() *cobra.Command {
	var req logRequest
	cmd := &cobra.Command{
		Use:   "status [-c berth.yaml | --repo DIR]",
		Short: "Show what runs, where, and what is held, paused or failing, and why",
		Long: `Show the estate at a glance, as Berth last recorded it on the branch
` + reconciler.BranchStatus + `: each instance with its phase and nodes, what needs attention, and
the documents on main that are held, with the reason.

In a clone, the branch is read as the last git fetch brought it. In the
directory of a berth.yaml that names a local repository, that one is read.

The exit status does not tell whether everything runs: see .instances[].ready
of -o json.

Exit status: 0, 1 there is no ` + reconciler.BranchStatus + ` to read, 2 usage.`,
		Example: `  berth status
  berth status -o json | jq -r '.instances[] | .name + " " + .phase'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			l, err := req.open(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			r, err := l.report(cmd.Context())
			if err != nil {
				return fmt.Errorf("status: %w", err)
			}
			if req.output == "json" {
				err = cli.WriteJSON(cmd.OutOrStdout(), r)
			} else {
				err = r.text(cmd.OutOrStdout(), req.noHeaders)
			}
			return err
		},
	}
	req.tableFlags(cmd)
	return cmd
}

// report reads the status branch.
func (l *estateLog) report(ctx context.Context) (*statusReport, error) {
	tree, err := l.ReadStatus(ctx, l.status)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", reconciler.BranchStatus, err)
	}
	rev := tree.Revision
	r := &statusReport{
		Format: "berth.status/v1", Commit: l.status, ConfigCommit: rev.Commit, InForce: rev.InForce, Frozen: rev.Frozen,
		Instances: []resourceStatus{}, Resources: []resourceStatus{}, Held: append([]plan.Held{}, rev.Held...), HeldMore: rev.HeldMore,
		Remarks: rev.Notices, Warnings: tree.Warnings,
	}
	if tree.Unread != "" {
		r.Warnings = append(r.Warnings, "revision.yaml: "+tree.Unread)
	}
	for _, key := range tree.Units.Keys() {
		u := unitStatus(tree.Units.Get(key))
		u.addHeld(heldOf(rev.Held, key))
		r.Instances = append(r.Instances, u)
	}
	for _, key := range slices.SortedFunc(maps.Keys(tree.Things), schema.Key.Compare) {
		r.Resources = append(r.Resources, thingStatus(tree.Things[key]))
	}
	if r.Paused, err = l.paused(ctx, rev); err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("pause document unreadable: %v", err))
	}
	if rev.Commit != "" && l.tips.Main != "" {
		ahead, err := l.Log(ctx, rev.Commit, l.tips.Main, maxUndecided)
		if err != nil {
			r.Warnings = append(r.Warnings, fmt.Sprintf("commits ahead of Berth not counted: %v", err))
		}
		r.Undecided = len(ahead)
	}
	return r, nil
}

// maxUndecided bounds how many commits ahead of Berth are counted.
const maxUndecided = 1000

// paused returns the reason in platform/pause.yaml in force, or "".
func (l *estateLog) paused(ctx context.Context, rev reconciler.Revision) (string, error) {
	if l.tips.InForce == "" {
		return "", nil
	}
	said, err := l.ReadInForce(ctx, l.tips.InForce)
	if err != nil {
		return "", err
	}
	snap, err := l.Snapshot(ctx, l.tips.InForce)
	if err != nil {
		return "", err
	}
	pauseFile, _ := schema.Key{Kind: schema.KindPause, Name: "pause"}.Path()
	text, there, err := readFile(ctx, snap, pauseFile)
	if err != nil {
		return "", err
	}
	d := decide.Decision{Desired: &schema.Desired{Platform: &schema.Platform{}}, Held: rev.Held, Permitted: said.Permitted}
	if there {
		loader, err := estate.New(estate.Options{Backends: backends.Definitions()})
		if err != nil {
			return "", err
		}
		loaded, err := loader.Load(ctx, estate.Files(map[string]string{pauseFile: string(text)}))
		if err != nil {
			return "", err
		}
		d.Desired = loaded.Desired
	}
	return d.Paused(), nil
}

// readFile reads one file of a snapshot.
func readFile(ctx context.Context, snap schema.Snapshot, path string) (data []byte, there bool, err error) {
	parts, err := snap.Parts(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, p := range parts {
		if path != p.Name && !strings.HasPrefix(path, p.Name+"/") {
			continue
		}
		files, err := snap.Files(ctx, p)
		if err != nil {
			return nil, false, err
		}
		for _, f := range files {
			if f.Path == path {
				data, _, err := snap.Read(ctx, f, 1<<20)
				return data, err == nil, err
			}
		}
	}
	return nil, false, nil
}

// unitStatus is the status of an instance, for people.
func unitStatus(s *plan.Status) resourceStatus {
	r := resourceStatus{
		Key: s.Key, Name: s.Key.ResourceName(), App: s.App, Phase: string(s.Phase), Conditions: s.Conditions,
		Ready: conditionOf(s.Conditions, "Ready").Status, Stalled: s.Phase == plan.PhaseFailed || conditionOf(s.Conditions, "Stalled").Status == "True",
		Revision: s.Revision,
	}
	for _, m := range s.Members {
		r.Members = append(r.Members, memberStatus{m.Name, m.Node, m.State, m.Placed})
	}
	why := reasons(s.Conditions)
	if len(why) == 0 || !slices.ContainsFunc(why, func(w string) bool { return strings.Contains(w, s.FailureReason) }) {
		why = append(why, s.FailureReason)
	}
	switch retry := s.Retry; {
	case retry == nil:
	case retry.Terminal:
		why = append(why, fmt.Sprintf("Berth gave up after %s; a new commit or /berth retry tries again", cli.Count(retry.Attempts, "attempt")))
	default:
		why = append(why, fmt.Sprintf("%s failed, the next is at %s", cli.Count(retry.Attempts, "attempt"), cli.Stamp(retry.Next)))
	}
	if s.Review != nil && s.Review.Stale != nil {
		stale := "held: the plan changed after its review"
		if s.Review.Pull != 0 {
			stale += fmt.Sprintf("; see pull request #%d", s.Review.Pull)
		}
		why = append(why, stale)
	}
	r.Why = cli.Join(why...)
	return r
}

// thingStatus is unitStatus for other resources.
func thingStatus(s *plan.ThingStatus) resourceStatus {
	return resourceStatus{
		Key: s.Key, Name: s.Key.ResourceName(), Phase: s.Phase, Conditions: s.Conditions, Revision: s.Revision,
		Ready: conditionOf(s.Conditions, "Ready").Status, Stalled: s.Phase == "failed" || conditionOf(s.Conditions, "Stalled").Status == "True",
		Why: cli.Join(reasons(s.Conditions)...),
	}
}

// addHeld adds that a change of the instance is held, unless a condition has it.
func (r *resourceStatus) addHeld(held []plan.Held) {
	if len(held) > 0 && conditionOf(r.Conditions, "Authorized").Status != "False" {
		r.Why = cli.Join("held: "+held[0].Message, r.Why)
	}
}

// conditionOf returns the condition of a type, or the zero value.
func conditionOf(cs []plan.Condition, kind string) plan.Condition {
	if i := slices.IndexFunc(cs, func(c plan.Condition) bool { return c.Type == kind }); i >= 0 {
		return cs[i]
	}
	return plan.Condition{}
}

// reasons returns the messages of conditions that need attention, the most important
// first. It leaves out a message that another one contains.
func reasons(cs []plan.Condition) []string {
	var out []string
	add := func(kind, status, prefix string) {
		if c := conditionOf(cs, kind); c.Status == status && cmp.Or(c.Message, c.Reason) != "" {
			text := c.Message
			if text == "" && kind == "DriftDetected" {
				text = c.Reason
			}
			if text != "" && !slices.ContainsFunc(out, func(o string) bool { return strings.Contains(o, text) }) {
				out = append(out, prefix+text)
			}
		}
	}
	add("Authorized", "False", "held: ")
	add("Ready", "False", "")
	add("Ready", "Unknown", "")
	add("Stalled", "True", "")
	add("Suspended", "True", "suspended: ")
	add("Scheduled", "False", "")
	add("QueuedByScheduler", "True", "")
	add("PolicyCompliant", "False", "policy: ")
	add("DriftDetected", "True", "drift: ")
	add("Reconciling", "True", "doing: ")
	return out
}

// text is the report for people.
func (r *statusReport) text(w io.Writer, noHeaders bool) error {
	var b strings.Builder
	color := cli.HasColor(w)
	line := func(name string, s cli.Style, format string, args ...any) {
		text := cli.Visible(fmt.Sprintf(format, args...))
		if color {
			text = s.Paint(text)
		}
		fmt.Fprintf(&b, "%-11s %s\n", name, text)
	}
	decided := "none yet"
	if r.ConfigCommit != "" {
		decided = "commit " + cli.ShortCommit(r.ConfigCommit)
	}
	switch {
	case r.Undecided >= maxUndecided:
		decided += fmt.Sprintf("; main is %d commits ahead or more: is the daemon running?", maxUndecided)
	case r.Undecided > 0:
		decided += fmt.Sprintf("; main is %s ahead, not decided yet", cli.Count(r.Undecided, "commit"))
	}
	line("Decided", cli.Plain, "%s", decided)
	line("Instances", cli.Plain, "%s", r.phases())
	if r.Frozen != "" {
		line("Frozen", cli.Red, "nothing new comes into force: %s", r.Frozen)
	}
	if r.Paused != "" {
		line("Paused", cli.Red, "nothing is changed on hosts: %s", r.Paused)
	}
	if n := len(r.Held) + r.HeldMore; n > 0 {
		line("Held", cli.Yellow, "%s on main, not in force", cli.Count(n, "document"))
	}
	for _, text := range r.Remarks {
		line("Repository", cli.Yellow, "%s", text)
	}
	for _, text := range r.Warnings {
		line("Warning", cli.Yellow, "%s", text)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return r.tables(w, noHeaders)
}

// phases counts the instances by phase.
func (r *statusReport) phases() string {
	if len(r.Instances) == 0 {
		return "none"
	}
	counts := map[string]int{}
	for _, i := range r.Instances {
		counts[i.Phase]++
	}
	var parts []string
	for _, phase := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[phase], phase))
	}
	return strings.Join(parts, ", ")
}

// tables writes the instances, other resources that need attention, and the held
// documents.
func (r *statusReport) tables(w io.Writer, noHeaders bool) error {
	instances := cli.NewTable(w, noHeaders, "INSTANCE", "PHASE", "READY", "MEMBERS", "NODES", "WHY")
	others := cli.NewTable(w, noHeaders, "KIND", "NAME", "PHASE", "READY", "WHY")
	held := cli.NewTable(w, noHeaders, "HELD", "REASON", "WHY")
	var err error
	for _, i := range r.Instances {
		err = errors.Join(err, instances.Row(i.Name, i.Phase, i.Ready, i.members(), i.nodes(), i.Why))
	}
	for _, o := range r.Resources {
		if o.Stalled || o.Key.Kind == schema.KindSharedRuntime {
			err = errors.Join(err, others.Row(string(o.Key.Kind), o.Name, o.Phase, o.Ready, o.Why))
		}
	}
	for _, h := range r.Held {
		err = errors.Join(err, held.Row(h.File, h.Why(), h.Message))
	}
	if r.HeldMore > 0 {
		err = errors.Join(err, held.Row(fmt.Sprintf("… and %d more", r.HeldMore), "", "git diff "+reconciler.BranchInForce+" main shows all of them"))
	}
	return errors.Join(err, cli.WriteTables(w, instances, others, held))
}

// line is the resource's state in one line.
func (r *resourceStatus) line() string {
	parts := []string{r.Phase}
	if r.Ready == "True" {
		parts[0] += ", ready"
	}
	if m := r.members(); m != "" {
		parts = append(parts, fmt.Sprintf("%s members on %s", m, r.nodes()))
	}
	return cli.Join(append(parts, r.Why)...)
}

// members counts the members that run, of all.
func (r *resourceStatus) members() string {
	if len(r.Members) == 0 {
		return ""
	}
	running := 0
	for _, m := range r.Members {
		if m.State == plan.Running {
			running++
		}
	}
	return fmt.Sprintf("%d/%d", running, len(r.Members))
}

// maxNodes bounds how many nodes of an instance a table names.
const maxNodes = 4

// nodes are the nodes of the members, in the order of the members.
func (r *resourceStatus) nodes() string {
	var names []string
	for _, m := range r.Members {
		if m.Node != "" && !slices.Contains(names, m.Node) {
			names = append(names, m.Node)
		}
	}
	if n := len(names); n > maxNodes {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNodes], ","), n-maxNodes)
	}
	return strings.Join(names, ",")
}
