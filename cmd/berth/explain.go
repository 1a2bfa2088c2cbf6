package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/plan"
	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/policy"
)

// explainRequest has the flags of `berth explain`.
type explainRequest struct {
	dir, repo, rev, output string
	roles                  bool
	tenants                map[string]string // directories of tenants' own repositories, by tenant
}

// explanation is the output of `berth explain`; its JSON is a contract.
type explanation struct {
	Format string `json:"format"`
	// Assumed: berth/in-force is missing, so all instances are assumed to exist.
	Assumed bool `json:"assumed,omitempty"`
	// MembersUnknown: berth/status is missing, so the nodes of members are unknown and
	// not checked against policy.
	MembersUnknown bool `json:"members_unknown,omitempty"`
	// InForceOnly: the estate has no valid document of the instance, so the version in
	// force is explained, if there is one.
	InForceOnly bool            `json:"in_force_only,omitempty"`
	Status      *resourceStatus `json:"status,omitempty"` // on berth/status; nil: missing, or nothing is recorded
	Held        []plan.Held     `json:"held,omitempty"`   // changes of it on main that are not in force
	policy.Explanation
}

func newExplainCmd() *cobra.Command {
	var req explainRequest
	cmd := &cobra.Command{
		Use:   "explain {TENANT.PROJECT/INSTANCE [FIELD] | TENANT/RUNTIME [FIELD] | --roles}",
		Short: "Show why an instance has its values, how it is, and why a change is held",
		Long: `Show each value of an instance with the chain of layers that made it: the
platform's policies by name, the tenant's, the entitlement's overrides, then the
version and the instance. For each layer: what it says, in which file and line, and
the value after it. A value without a policy has the document, version or role
binding that says it, or the default.

FIELD shows one value, or those below it: regions, roles, max_gpus_per_instance,
config.partitions. TENANT/RUNTIME is a shared runtime, platform/RUNTIME one of the
platform's.

The estate is read from --dir, from the work tree of --repo, or from --rev of it.
If the repository has Berth's branches, its own or those of the last git fetch, the
output also has:
  now    the phase of the instance, and the nodes of its members
  held   changes of the instance on main that are not in force, with the reason
If the document is invalid or missing, the version in force is explained. Without
the branches, the instance is assumed to exist.

With --tenant NAME=DIR, that tenant's documents are read from its own repository in
DIR. With --roles, show what each role may do.

Exit status: 0 (also if policy refuses the instance), 1 not found, 2 usage.`,
		Example: `  berth explain physics.lattice/train
  berth explain physics.lattice/train max_gpus_per_instance
  berth explain --roles`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeNames(schema.KindInstance, schema.KindSharedRuntime),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := req.check(args); err != nil {
				return cli.Usage(err)
			}
			if req.roles {
				return printRoles(cmd.OutOrStdout(), req.output)
			}
			key, err := instanceKey(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			e, err := req.explain(cmd.Context(), key, time.Now())
			if err != nil {
				return err
			}
			if len(args) == 2 && len(e.Values) > 0 {
				if e.Values, err = below(e.Values, args[1]); err != nil {
					return err
				}
			}
			if req.output == "json" {
				err = cli.WriteJSON(cmd.OutOrStdout(), e)
			} else {
				err = e.text(cmd.OutOrStdout())
			}
			return err
		},
	}
	cmd.Flags().StringVar(&req.dir, "dir", "", "directory of the estate (default the working directory, or the one above it that has platform/ and tenants/)")
	cmd.Flags().StringVar(&req.repo, "repo", "", "Git repository of the estate, or a directory in it")
	cmd.Flags().StringVar(&req.rev, "rev", "", "revision of --repo, such as main (default the work tree)")
	cmd.Flags().StringToStringVar(&req.tenants, "tenant", nil, "NAME=DIR: a tenant whose documents are in a directory of their own; may be repeated")
	cli.OutputFlag(cmd, &req.output, "text", "json")
	cmd.Flags().BoolVar(&req.roles, "roles", false, "show what each role may do")
	return cmd
}

// check returns an error in how the command was called.
func (r *explainRequest) check(args []string) error {
	switch {
	case r.roles && len(args) > 0:
		return errors.New("explain: --roles is about all instances: give no name")
	case r.roles:
		return nil
	case len(args) == 0:
		return errors.New("explain: name missing; give TENANT.PROJECT/INSTANCE, or --roles")
	case r.dir != "" && (r.repo != "" || r.rev != ""):
		return errors.New("explain: --dir and --repo name two estates; give one of them")
	}
	return nil
}

// instanceKey parses TENANT.PROJECT/INSTANCE, or TENANT/RUNTIME of a shared runtime.
// TENANT is platform for a shared runtime of the platform.
func instanceKey(name string) (schema.Key, error) {
	id, instance, _ := strings.Cut(name, "/")
	tenant, project, ofProject := strings.Cut(id, ".")
	if tenant != "" && instance != "" && !ofProject {
		if tenant == "platform" {
			tenant = ""
		}
		return schema.Key{Kind: schema.KindSharedRuntime, Tenant: tenant, Name: instance}, nil
	}
	if tenant == "" || project == "" || instance == "" {
		return schema.Key{}, fmt.Errorf("explain: %q does not name an instance; give TENANT.PROJECT/INSTANCE, or TENANT/RUNTIME for a shared runtime (platform/RUNTIME for one of the platform)", name)
	}
	return schema.InstanceKey(tenant, project, instance), nil
}

// explain reads the estate and explains an instance as of now.
func (r *explainRequest) explain(ctx context.Context, key schema.Key, now time.Time) (out explanation, err error) {
	at, err := r.atHand(ctx)
	if err != nil {
		return out, cli.Usage(fmt.Errorf("explain: %w", err))
	}
	defer func() { err = errors.Join(err, at.done()) }()
	snap, _, err := estate.WithTenants(ctx, at.asked, r.tenants)
	if err != nil {
		return out, cli.Usage(fmt.Errorf("explain: %w", err))
	}
	loader, err := estate.New(estate.Options{Backends: backends.Definitions()})
	if err != nil {
		return out, err
	}
	out.Format, out.Key, out.Values, out.Assumed = "berth.explain/v1", key, []policy.Value{}, at.inForce == nil
	existing := func(schema.Key) bool { return true }
	var inForce *estate.Result
	if at.inForce != nil {
		if inForce, err = loader.Load(ctx, at.inForce); err != nil {
			return out, fmt.Errorf("explain: %w", err)
		}
		existing = func(k schema.Key) bool { return inForce.Desired.Header(k) != nil }
	}
	out.recorded(at.status)
	loaded, err := loader.Load(ctx, snap)
	if err != nil {
		return out, fmt.Errorf("explain: %w", err)
	}
	opts := []policy.Option{policy.Existing(existing), policy.At(now.UTC().Format(time.DateOnly))}
	if out.judge(loaded.Desired, at, opts) {
		return out, nil
	}
	out.InForceOnly = true
	if inForce != nil && out.judge(inForce.Desired, at, opts) || out.Status != nil || len(out.Held) > 0 {
		return out, nil
	}
	return out, fmt.Errorf("explain: no valid document declares %s; berth get %s lists the valid ones, berth validate shows errors, berth events shows deletions", key, key.Kind.Plural())
}

// recorded fills in the status of the instance. status may be nil.
func (e *explanation) recorded(status *reconciler.StatusTree) {
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

// heldOf returns the held changes of a document, including those of its tenant.
func heldOf(held []plan.Held, key schema.Key) []plan.Held {
	path, err := key.Path()
	return slices.DeleteFunc(slices.Clone(held), func(h plan.Held) bool {
		return h.Key != key && (err != nil || path != h.File && !strings.HasPrefix(path, h.File+"/"))
	})
}

// judge explains the values in an estate; false if it has no valid document of the
// instance.
func (e *explanation) judge(d *schema.Desired, at atHand, opts []policy.Option) (ok bool) {
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

// atHand has the estates and the status to explain from.
type atHand struct {
	asked   schema.Snapshot        // the estate to explain
	inForce schema.Snapshot        // nil: missing
	status  *reconciler.StatusTree // nil: missing
	done    func() error           // closes the repository
}

func (r *explainRequest) atHand(ctx context.Context) (at atHand, err error) {
	at.done = func() error { return nil }
	where, rev := r.repo, r.rev
	if where == "" {
		where = r.dir
	}
	if where == "" {
		where = "."
	}
	place, err := gitrepo.Locate(where)
	if err != nil && (r.repo != "" || rev != "") {
		return at, err
	}
	if rev == "" && r.dir == "" && place.GitDir != "" && place.WorkTree == "" {
		rev = "main" // a bare repository
	}
	if rev == "" {
		dir := cmp.Or(r.dir, place.WorkTree)
		if r.dir == "" && r.repo == "" {
			if dir, err = estateRoot(where); err != nil {
				return at, err
			}
		}
		if at.asked, err = estate.Dir(dir); err != nil {
			return at, err
		}
		if root, err := filepath.Abs(dir); err != nil || place.WorkTree != root {
			return at, err // the branches of a repository around it are about another estate
		}
	}
	repo, err := gitrepo.OpenLocal(where)
	if err != nil {
		return at, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, repo.Close())
		}
	}()
	at.done = repo.Close
	if rev != "" {
		commit, err := repo.Resolve(ctx, rev)
		if err != nil {
			return at, fmt.Errorf("--rev: %w", err)
		}
		if at.asked, err = repo.Snapshot(ctx, commit); err != nil {
			return at, err
		}
	}
	return at, at.branches(ctx, repo)
}

// branches reads those of Berth's branches that the repository has.
func (at *atHand) branches(ctx context.Context, repo *gitrepo.Repo) error {
	tips, err := repo.Latest(ctx)
	if err != nil {
		return err
	}
	if tips.InForce != "" {
		if at.inForce, err = repo.Snapshot(ctx, tips.InForce); err != nil {
			return err
		}
	}
	if tips.Status != "" {
		status, err := repo.ReadStatus(ctx, tips.Status)
		if err != nil {
			return fmt.Errorf("%s: %w", reconciler.BranchStatus, err)
		}
		at.status = &status
	}
	return nil
}

// estateRoot returns dir or the nearest directory above it that has platform/ or
// tenants/.
func estateRoot(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := abs; ; at = filepath.Dir(at) {
		for _, name := range []string{"platform", "tenants"} {
			if info, err := os.Stat(filepath.Join(at, name)); err == nil && info.IsDir() {
				return at, nil
			}
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no estate found in %s: it has neither platform/ nor tenants/; run the command in a clone of the estate, or give --repo DIR", abs)
		}
	}
}

// below returns the values of a field and of the fields below it.
func below(values []policy.Value, field string) ([]policy.Value, error) {
	field = strings.TrimPrefix(field, "spec.")
	var out []policy.Value
	var names []string
	for _, v := range values {
		names = append(names, v.Field)
		if v.Field == field || strings.HasPrefix(v.Field, field+".") {
			out = append(out, v)
		}
	}
	if out == nil {
		return nil, fmt.Errorf("explain: no field %q; choose one of %s", field, strings.Join(names, ", "))
	}
	return out, nil
}

func (e *explanation) text(w io.Writer) error {
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
	for _, v := range e.Values {
		fmt.Fprintf(&b, "\n%s: %s", v.Field, policy.Text(v.Value))
		if v.Asked != nil {
			fmt.Fprintf(&b, " (asked: %s)", policy.Text(v.Asked))
		}
		b.WriteString("\n")
		tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, s := range v.Steps {
			fmt.Fprintf(tw, "  %s\t%s:%d\tsays %s", s.Scope, s.Source.File, s.Source.Line, policy.Text(s.Says))
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
			fmt.Fprintf(&b, "  %s: %s (%s:%d)\n", d.Verdict, d.Message, d.Source.File, d.Source.Line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict is the decision on the instance, in one line.
func (e *explanation) verdict() string {
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
