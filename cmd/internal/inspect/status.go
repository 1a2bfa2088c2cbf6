package inspect

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/schema"
	"berth/schema/estate"
)

// Overview is the output of `berth status`; its JSON is a contract.
type Overview struct {
	Format       string           `json:"format"` // berth.status/v1
	Commit       string           `json:"commit"` // of berth/status
	ConfigCommit string           `json:"config_commit,omitempty"`
	InForce      string           `json:"in_force,omitempty"`  // commit of berth/in-force
	Undecided    int              `json:"undecided,omitempty"` // commits on main after ConfigCommit
	Paused       string           `json:"paused,omitempty"`    // why hosts are not changed
	Frozen       string           `json:"frozen,omitempty"`    // why synchronization is frozen
	Instances    []ResourceStatus `json:"instances"`
	Shared       []ResourceStatus `json:"shared_runtimes,omitempty"`
	Resources    []ResourceStatus `json:"resources"` // of other kinds
	Held         []schema.Held    `json:"held"`
	HeldMore     int              `json:"held_more,omitempty"` // held documents that Held leaves out
	Remarks      []string         `json:"remarks,omitempty"`   // on repositories of tenants
	Warnings     []string         `json:"warnings,omitempty"`  // unreadable parts of the status
}

// Overview reads the status branch, and leaves what a filter selects.
func (l *Repository) Overview(ctx context.Context, filter StatusFilter) (*Overview, error) {
	tree, err := l.ReadStatus(ctx, l.status)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", reconciler.BranchStatus, err)
	}
	rev := tree.Revision
	r := &Overview{
		Format: "berth.status/v1", Commit: l.status, ConfigCommit: rev.Commit, InForce: rev.InForce, Frozen: rev.Frozen,
		Instances: []ResourceStatus{}, Resources: []ResourceStatus{}, Held: append([]schema.Held{}, rev.Held...), HeldMore: rev.HeldMore,
		Remarks: rev.Notices, Warnings: tree.Warnings,
	}
	if tree.Unread != "" {
		r.Warnings = append(r.Warnings, "revision.yaml: "+tree.Unread)
	}
	for _, key := range tree.Units.Keys() {
		u := unitStatus(tree.Units.Get(key))
		u.addHeld(heldOf(rev.Held, key))
		if key.Kind == schema.KindSharedRuntime {
			r.Shared = append(r.Shared, u)
		} else {
			r.Instances = append(r.Instances, u)
		}
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
	if filter == (StatusFilter{}) {
		return r, nil
	}
	inForce, err := l.inForce(ctx)
	if err != nil {
		return nil, err
	}
	return r, r.Filter(filter, inForce)
}

// maxUndecided bounds how many commits ahead of Berth are counted.
const maxUndecided = 1000

// paused returns the reason in platform/pause.yaml in force, or "".
func (l *Repository) paused(ctx context.Context, rev reconciler.Revision) (string, error) {
	if l.tips.InForce == "" {
		return "", nil
	}
	inForce, err := l.ReadInForce(ctx, l.tips.InForce)
	if err != nil {
		return "", err
	}
	snap, err := l.Snapshot(ctx, l.tips.InForce)
	if err != nil {
		return "", err
	}
	files, err := documentFiles(ctx, snap, "platform")
	if err != nil {
		return "", err
	}
	d := decide.Decision{Desired: &schema.Desired{Platform: &schema.Platform{}}, Held: rev.Held, Permitted: inForce.Permitted}
	if f, ok := files[schema.Key{Kind: schema.KindPause, Name: "pause"}]; ok {
		text, _, err := snap.Read(ctx, f, maxDocument)
		if err != nil {
			return "", err
		}
		loader, err := localestate.NewLoader()
		if err != nil {
			return "", err
		}
		loaded, err := loader.Load(ctx, estate.Files(map[string]string{f.Path: string(text)}))
		if err != nil {
			return "", err
		}
		d.Desired = loaded.Desired
	}
	return d.Paused(), nil
}

// Text implements cli.Report.
func (o *Overview) Text(p *cli.Page) error {
	var b strings.Builder
	color := cli.HasColor(p.Writer)
	line := func(name string, s cli.Style, format string, args ...any) {
		text := cli.Visible(fmt.Sprintf(format, args...))
		if color {
			text = s.Paint(text)
		}
		fmt.Fprintf(&b, "%-11s %s\n", name, text)
	}
	inForce := "nothing yet"
	if o.ConfigCommit != "" {
		inForce = "up to commit " + cli.ShortCommit(o.ConfigCommit)
	}
	switch {
	case o.Undecided >= maxUndecided:
		inForce += fmt.Sprintf("; main is %d commits ahead or more: is the daemon running?", maxUndecided)
	case o.Undecided > 0:
		inForce += fmt.Sprintf("; main is %s ahead, not decided yet", cli.Count(o.Undecided, "commit"))
	}
	line("In force", cli.Plain, "%s", inForce)
	line("Instances", cli.Plain, "%s", phases(o.Instances))
	if len(o.Shared) > 0 {
		line("Runtimes", cli.Plain, "%s", phases(o.Shared))
	}
	if o.Frozen != "" {
		line("Frozen", cli.Red, "nothing new comes into force: %s", o.Frozen)
	}
	if o.Paused != "" {
		line("Paused", cli.Red, "nothing is changed on hosts: %s", o.Paused)
	}
	if n := len(o.Held) + o.HeldMore; n > 0 {
		line("Held", cli.Yellow, "%s on main, not in force", cli.Count(n, "document"))
	}
	for _, text := range o.Remarks {
		line("Repository", cli.Yellow, "%s", text)
	}
	for _, text := range o.Warnings {
		line("Warning", cli.Yellow, "%s", text)
	}
	if _, err := io.WriteString(p, b.String()); err != nil {
		return err
	}
	return o.tables(p)
}

// phases counts units by phase.
func phases(units []ResourceStatus) string {
	if len(units) == 0 {
		return "none"
	}
	counts := map[string]int{}
	for _, i := range units {
		counts[i.Phase]++
	}
	var parts []string
	for _, phase := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[phase], phase))
	}
	return strings.Join(parts, ", ")
}

// tables writes the instances, the shared runtimes, other resources that need attention, and the held
// documents.
func (o *Overview) tables(p *cli.Page) error {
	instances := p.Table("INSTANCE", "PHASE", "READY", "MEMBERS", "NODES", "WHY")
	shared := p.Table("SHARED-RUNTIME", "PHASE", "READY", "MEMBERS", "NODES", "ATTACHED", "WHY")
	others := p.Table("KIND", "NAME", "PHASE", "READY", "WHY")
	held := p.Table("HELD", "REASON", "WHY")
	for _, i := range troubleFirst(o.Instances) {
		instances.Row(i.Name, i.Phase, string(i.Ready), i.members(), i.nodes(), i.Why)
	}
	for _, s := range troubleFirst(o.Shared) {
		shared.Row(s.Name, s.Phase, string(s.Ready), s.members(), s.nodes(), s.attached(), s.Why)
	}
	for _, o := range o.Resources {
		if o.Stalled || o.Node != nil && o.isTrouble() {
			others.Row(string(o.Key.Kind), o.Name, o.Phase, string(o.Ready), o.Why)
		}
	}
	for _, h := range o.Held {
		held.Row(h.File, h.Why(), h.Message)
	}
	if o.HeldMore > 0 {
		held.Row(fmt.Sprintf("… and %d more", o.HeldMore), "", "git diff "+reconciler.BranchInForce+" main shows all of them")
	}
	return p.Tables(instances, shared, others, held)
}
