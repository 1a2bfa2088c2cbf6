package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/policy"
)

// ExplainOptions name the estate to explain from.
type ExplainOptions struct {
	Dir     string            // directory of the estate
	Repo    string            // Git repository of the estate, or a directory in it
	Rev     string            // of Repo; "": its work tree
	Tenants map[string]string // directories of tenants' own repositories, by tenant
	// Limits returns the names of limits in the refusals of a backend's scheduler, each with the
	// field of submission_limits that sets it. Nil: no backend has such names.
	Limits func(backend string) map[string]string
}

// Explanation is why an instance has its values; its JSON is a contract.
type Explanation struct {
	Format string `json:"format"`
	// Assumed: berth/in-force is missing, so all instances are assumed to exist.
	Assumed bool `json:"assumed,omitempty"`
	// MembersUnknown: berth/status is missing, so the nodes of members are unknown and
	// not checked against policy.
	MembersUnknown bool `json:"members_unknown,omitempty"`
	// InForceOnly: the estate has no valid document of the instance, so the version in
	// force is explained, if there is one.
	InForceOnly bool            `json:"in_force_only,omitempty"`
	Status      *ResourceStatus `json:"status,omitempty"` // on berth/status; nil: missing, or nothing is recorded
	Held        []schema.Held   `json:"held,omitempty"`   // changes of it on main that are not in force
	Limit       *ExplainedLimit `json:"limit,omitempty"`  // limit that was asked for by its name at the scheduler
	policy.Explanation
}

// ExplainedLimit is a limit in a scheduler's refusal, and the field that sets it.
type ExplainedLimit struct {
	Name  string `json:"name"`
	Field string `json:"field"`
}

// Explain explains an instance as of now: all its values, or those of one field.
func Explain(ctx context.Context, o ExplainOptions, key schema.Key, field string, now time.Time) (e *Explanation, err error) {
	at, err := o.open(ctx)
	if err != nil {
		return nil, cli.Usage(err)
	}
	defer func() { err = errors.Join(err, at.close()) }()
	snap, _, err := estate.WithTenants(ctx, at.asked, o.Tenants)
	if err != nil {
		return nil, cli.Usage(err)
	}
	loader, err := localestate.NewLoader()
	if err != nil {
		return nil, err
	}
	e = &Explanation{Format: "berth.explain/v1", Assumed: at.inForce == nil,
		Explanation: policy.Explanation{Key: key, Values: []policy.Value{}}}
	existing := func(schema.Key) bool { return true }
	var inForce *estate.Result
	if at.inForce != nil {
		if inForce, err = loader.Load(ctx, at.inForce); err != nil {
			return nil, err
		}
		existing = func(k schema.Key) bool { return inForce.Desired.Header(k) != nil }
	}
	e.recorded(at.status)
	loaded, err := loader.Load(ctx, snap)
	if err != nil {
		return nil, err
	}
	opts := []policy.Option{policy.Existing(existing), policy.At(now.UTC().Format(time.DateOnly))}
	if !e.judge(loaded.Desired, at, opts) {
		e.InForceOnly = true
		if (inForce == nil || !e.judge(inForce.Desired, at, opts)) && e.Status == nil && len(e.Held) == 0 {
			return nil, undeclared(key, loaded.Desired)
		}
	}
	if field != "" && len(e.Values) > 0 {
		err = e.choose(field, o.Limits)
	}
	return e, err
}

// undeclared is the error for a unit without a valid document.
func undeclared(key schema.Key, d *schema.Desired) error {
	if like := nearestName(key.ResourceName(), unitNames(d)); like != "" {
		return fmt.Errorf("no valid document declares %s: did you mean %q?", key, like)
	}
	return fmt.Errorf("no valid document declares %s; berth get %s lists the valid ones, berth validate shows errors, berth events shows "+
		"deletions", key, key.Kind.Plural())
}

// choose leaves the values of one field, or of the limit of that name in the refusals of the
// instance's scheduler.
func (e *Explanation) choose(field string, limits func(backend string) map[string]string) error {
	field = strings.TrimPrefix(field, "spec.") // as in the document
	values, names := below(e.Values, field)
	if values != nil {
		e.Values = values
		return nil
	}
	var known map[string]string
	backend := ""
	isBackend := func(v policy.Value) bool { return v.Field == "runtime_backend" }
	if i := slices.IndexFunc(e.Values, isBackend); i >= 0 && limits != nil {
		backend = policy.Text(e.Values[i].Value)
		known = limits(backend)
	}
	limit, ok := known[field]
	like := nearestName(field, append(slices.Sorted(maps.Keys(known)), names...))
	if i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, field) }); i >= 0 && like == "" {
		like = names[i]
	}
	switch {
	case !ok && like != "":
		return fmt.Errorf("no field or limit %q: did you mean %q?", field, like)
	case !ok && len(known) == 0:
		return fmt.Errorf("no field %q; choose one of %s", field, strings.Join(names, ", "))
	case !ok:
		return fmt.Errorf("no field or limit %q; choose one of %s; or one of the limits of %s: %s",
			field, strings.Join(names, ", "), backend, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	e.Limit = &ExplainedLimit{field, limit}
	values = slices.DeleteFunc(slices.Clone(e.Values), func(v policy.Value) bool { return !setsLimit(v.Field, limit) })
	if len(values) == 0 {
		return fmt.Errorf("limit %s is %s, which no Attachment and no Instance sets for %s", field, limit, e.Key)
	}
	e.Values = values
	return nil
}

// setsLimit reports whether a field is a limit of an instance or of an attachment.
func setsLimit(field, limit string) bool {
	return field == "submission_limits."+limit || strings.HasPrefix(field, "attachments.") && strings.HasSuffix(field, "."+limit)
}

// recorded fills in the status of the instance. status may be nil.
func (e *Explanation) recorded(status *reconciler.StatusTree) {
	if status == nil {
		return
	}
	if s := status.Units.Get(e.Key); s != nil {
		r := unitStatus(s)
		e.Status = &r
	} else if s := status.Things[e.Key]; s != nil {
		r := thingStatus(s)
		e.Status = &r
	}
	e.Held = heldOf(status.Revision.Held, e.Key)
}

// judge explains the values in an estate; false if it has no valid document of the
// instance.
func (e *Explanation) judge(d *schema.Desired, at *basis, opts []policy.Option) (ok bool) {
	var out policy.Explanation
	switch t := d.Tenants[e.Key.Tenant]; {
	case e.Key.Kind == schema.KindSharedRuntime:
		out, ok = policy.ExplainShared(d, e.Key, opts...)
	case t != nil:
		e.MembersUnknown = at.status == nil
		if at.status != nil {
			placed := plan.Place(policy.Evaluate(d, opts...), at.status.Units)
			opts = append(slices.Clone(opts), policy.Outside(placed.Outside(e.Key)))
		}
		out, ok = policy.Explain(d.Platform, t, e.Key, opts...)
	}
	if ok {
		e.Explanation = out
	}
	return ok
}

// below returns the values of a field and of the fields below it, and the names of all fields.
func below(values []policy.Value, field string) (out []policy.Value, names []string) {
	field = strings.TrimPrefix(field, "spec.")
	for _, v := range values {
		names = append(names, v.Field)
		if v.Field == field || strings.HasPrefix(v.Field, field+".") {
			out = append(out, v)
		}
	}
	return out, names
}

// verdict is the decision on the instance, in one line.
func (e *Explanation) verdict() string {
	n := e.Noncompliance
	switch {
	case len(e.Values) == 0 && len(e.Held) > 0:
		return "not in force"
	case len(e.Values) == 0:
		return "not declared"
	case n == nil && e.Denied:
		return "denied; it is new, and does not come into force"
	case n == nil:
		return "allowed"
	case n.Fate == schema.FateStopping:
		return "denied; it keeps running until " + n.Day + " begins, UTC, and is then stopped"
	case n.Fate == schema.FateStopped:
		return "denied; it is stopped, as its grace period ended on " + n.Day
	}
	return "denied; it keeps running, and only a change that complies comes into force"
}

// Text implements cli.Report.
func (e *Explanation) Text(p *cli.Page) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", e.Key, e.verdict())
	if s := e.Status; s != nil {
		fmt.Fprintf(&b, "now: %s\n", cli.Visible(s.line()))
	}
	for _, h := range e.Held {
		fmt.Fprintf(&b, "held: %s\n", cli.Visible(fmt.Sprintf("%s (%s): %s", h.File, h.Why(), h.Message)))
	}
	if e.InForceOnly && len(e.Values) > 0 {
		b.WriteString("(no valid document in this estate; the values are those of the version in force)\n")
	}
	if e.MembersUnknown {
		fmt.Fprintf(&b, "(branch %s missing; the nodes of the members are not checked against policy)\n", reconciler.BranchStatus)
	}
	if e.Limit != nil {
		fmt.Fprintf(&b, "limit: %s is %s\n", cli.Visible(e.Limit.Name), e.Limit.Field)
	}
	for _, v := range e.Values {
		if err := e.writeValue(&b, v); err != nil {
			return err
		}
	}
	_, err := io.WriteString(p, b.String())
	return err
}

// writeValue prints a value with the steps of policy and the decisions about it.
func (e *Explanation) writeValue(b *strings.Builder, v policy.Value) error {
	fmt.Fprintf(b, "\n%s: %s", v.Field, policy.Text(v.Value))
	if v.Asked != nil {
		fmt.Fprintf(b, " (asked: %s)", policy.Text(v.Asked))
	}
	b.WriteString("\n")
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, s := range v.Steps {
		fmt.Fprintf(tw, "  %s\t%s\tsays %s", s.Scope, s.Source.Place(), policy.Text(s.Says))
		if after := policy.Text(s.Value); after != policy.Text(s.Says) {
			fmt.Fprintf(tw, "\tleaves %s", after)
		}
		fmt.Fprintln(tw)
	}
	if e.Assumed && v.Field == "max_instances_per_project" {
		fmt.Fprintln(tw, "  (branch berth/in-force missing; all instances are assumed to exist, and counted by name)")
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, d := range v.Decisions {
		fmt.Fprintf(b, "  %s: %s (%s)\n", d.Verdict, d.Message, d.Source.Place())
	}
	return nil
}
