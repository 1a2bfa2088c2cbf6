package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/load"
	"berth/schema/policy"
)

// explainRequest is what `berth explain` is asked.
type explainRequest struct {
	dir, repo, rev, output string
	roles                  bool
	tenants                map[string]string // directories that stand in the place of tenants' own, by tenant
}

// explanation is what `berth explain` says; its JSON is a contract.
type explanation struct {
	Format string `json:"format"`
	// Assumed says that it is not known which instances were there first: all are
	// taken to be, as where no berth/in-force is at hand.
	Assumed bool `json:"assumed,omitempty"`
	// MembersUnknown says that it is not known which nodes members are on, as where
	// no berth/status is at hand, so that nothing is told of nodes that policy does
	// not allow.
	MembersUnknown bool `json:"members_unknown,omitempty"`
	policy.Explanation
}

func newExplainCmd() *cobra.Command {
	var req explainRequest
	cmd := &cobra.Command{
		Use:   "explain {TENANT.PROJECT/INSTANCE [FIELD] | TENANT/RUNTIME [FIELD] | --roles}",
		Short: "which layers of policy made each value of an instance",
		Long: `Show what an instance comes to, and for each value the chain of layers that made
it: the platform's policies by name, the tenant's, the entitlement's overrides,
then the version and the instance; what each says, where it stands, and what the
value is after it. FIELD shows one value, or those below it: regions, roles,
max_gpus_per_instance, config.partitions. What no policy speaks of has the document,
version or role binding that says it, or the default. TENANT/RUNTIME is a shared
runtime, platform/RUNTIME one of the platform's.

The estate is read from --dir, or from --rev of the Git repository --repo. The
instance is taken to exist already, and today is the day. Which nodes its members
are on, and so whether policy allows those, is known with --rev, where the
repository has berth/status. With --tenant NAME=DIR, DIR is the repository that this
tenant has of its own.

With --roles, show what each role may do.

Exit status: 0 (also where policy refuses the instance), 1 not found, 2 usage.`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := req.check(args); err != nil {
				return &exitError{2, err}
			}
			if req.roles {
				if err := printRoles(cmd.OutOrStdout(), req.output); err != nil {
					return &exitError{1, err}
				}
				return nil
			}
			key, err := instanceKey(args[0])
			if err != nil {
				return &exitError{2, err}
			}
			e, err := req.explain(cmd.Context(), key, time.Now())
			if err != nil {
				return err
			}
			if len(args) == 2 {
				if e.Values, err = below(e.Values, args[1]); err != nil {
					return &exitError{1, err}
				}
			}
			if req.output == "json" {
				err = writeJSON(cmd.OutOrStdout(), e)
			} else {
				err = e.text(cmd.OutOrStdout())
			}
			if err != nil {
				return &exitError{1, err}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&req.dir, "dir", "", "directory of the estate (default the working directory)")
	cmd.Flags().StringVar(&req.repo, "repo", "", "Git repository of the estate, or a directory in it; needs --rev")
	cmd.Flags().StringVar(&req.rev, "rev", "", "revision of --repo, such as main")
	cmd.Flags().StringToStringVar(&req.tenants, "tenant", nil, "NAME=DIR: a tenant whose documents are in a directory of their own; may be repeated")
	outputFlag(cmd, &req.output, "text", "json")
	cmd.Flags().BoolVar(&req.roles, "roles", false, "show what each role may do")
	return cmd
}

// check says what is wrong with how the command was called.
func (r *explainRequest) check(args []string) error {
	switch {
	case r.roles && len(args) > 0:
		return errors.New("explain: --roles is about every instance: give no name")
	case r.roles:
		return nil
	case len(args) == 0:
		return errors.New("explain: which instance? Give TENANT.PROJECT/INSTANCE, or --roles")
	case r.dir != "" && (r.repo != "" || r.rev != ""):
		return errors.New("explain: --dir and --repo are two estates: give one of them")
	case r.repo != "" && r.rev == "":
		return errors.New("explain: --rev is missing: the revision of --repo, such as main")
	}
	return nil
}

// instanceKey reads TENANT.PROJECT/INSTANCE, or TENANT/RUNTIME of a shared runtime,
// which is the platform's where TENANT is platform.
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
		return schema.Key{}, fmt.Errorf("explain: %q is no instance: want TENANT.PROJECT/INSTANCE, or TENANT/RUNTIME of a shared runtime (platform/RUNTIME of the platform's)", name)
	}
	return schema.InstanceKey(tenant, project, instance), nil
}

// explain reads the estate and explains the instance of key as of now.
func (r *explainRequest) explain(ctx context.Context, key schema.Key, now time.Time) (out explanation, err error) {
	at, err := r.atHand(ctx)
	if err != nil {
		return out, &exitError{2, fmt.Errorf("explain: %w", err)}
	}
	defer func() { err = errors.Join(err, at.done()) }()
	snap, _, err := load.WithTenants(ctx, at.asked, r.tenants)
	if err != nil {
		return out, &exitError{2, fmt.Errorf("explain: %w", err)}
	}
	loader, err := load.New(load.Options{Backends: backends()})
	if err != nil {
		return out, &exitError{1, err}
	}
	loaded, err := loader.Load(ctx, snap)
	if err != nil {
		return out, &exitError{1, fmt.Errorf("explain: %w", err)}
	}
	out.Format, out.Assumed = "berth.explain/v1", at.inForce == nil
	existing := func(schema.Key) bool { return true }
	if at.inForce != nil {
		was, err := loader.Load(ctx, at.inForce)
		if err != nil {
			return out, &exitError{1, fmt.Errorf("explain: %w", err)}
		}
		existing = func(k schema.Key) bool { return was.Desired.Header(k) != nil }
	}
	opts := []policy.Option{policy.Existing(existing), policy.At(now.UTC().Format(time.DateOnly))}
	var ok bool
	if key.Kind == schema.KindSharedRuntime {
		if out.Explanation, ok = policy.ExplainShared(loaded.Desired, key, opts...); ok {
			return out, nil
		}
	} else if t := loaded.Desired.Tenants[key.Tenant]; t != nil {
		out.MembersUnknown = at.units == nil
		if at.units != nil {
			placed := plan.Place(policy.Evaluate(loaded.Desired, opts...), *at.units)
			opts = append(opts, policy.Outside(placed.Outside(key)))
		}
		if out.Explanation, ok = policy.Explain(loaded.Desired.Platform, t, key, opts...); ok {
			return out, nil
		}
	}
	return out, &exitError{1, fmt.Errorf("explain: there is no valid %s; berth validate tells what is wrong", key)}
}

// atHand is what there is to explain from.
type atHand struct {
	asked   schema.Snapshot // the estate that is asked for
	inForce schema.Snapshot // nil: it is not at hand
	units   *plan.Memory    // what berth/status says of the units; nil: it is not at hand
	done    func() error    // when they were read
}

func (r *explainRequest) atHand(ctx context.Context) (at atHand, err error) {
	at.done = func() error { return nil }
	if r.rev == "" {
		dir := r.dir
		if dir == "" {
			dir = "."
		}
		at.asked, err = load.Dir(dir)
		return at, err
	}
	where := r.repo
	if where == "" {
		where = "."
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
	commit, err := repo.Resolve(ctx, r.rev)
	if err != nil {
		return at, fmt.Errorf("--rev: %w", err)
	}
	if at.asked, err = repo.Snapshot(ctx, commit); err != nil {
		return at, err
	}
	tips, err := repo.Fetch(ctx) // of the local branches: nothing is fetched
	if err != nil && !errors.Is(err, reconciler.ErrNotFound) {
		return at, err
	}
	if tips.InForce != "" {
		if at.inForce, err = repo.Snapshot(ctx, tips.InForce); err != nil {
			return at, err
		}
	}
	if tips.Status != "" {
		status, err := repo.ReadStatus(ctx, tips.Status)
		if err != nil {
			return at, fmt.Errorf("%s: %w", reconciler.BranchStatus, err)
		}
		at.units = &status.Units
	}
	return at, nil
}

// below are the values of a field, and of those below it.
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
		return nil, fmt.Errorf("explain: there is no field %q here: there is %s", field, strings.Join(names, ", "))
	}
	return out, nil
}

func (e *explanation) text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", e.Key, e.verdict())
	if e.MembersUnknown {
		fmt.Fprintf(&b, "(no %s is at hand, so whether policy allows the nodes that its members are on is not judged here)\n", reconciler.BranchStatus)
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
			fmt.Fprintln(tw, "  (no berth/in-force is at hand, so all are taken to be there already, and counted by name)")
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

// verdict says in one line what becomes of it.
func (e *explanation) verdict() string {
	n := e.Noncompliance
	switch {
	case n == nil && e.Denied:
		return "refused; it is new, and does not come into force"
	case n == nil:
		return "allowed"
	case n.Fate == schema.FateStopping:
		return "refused; it stays as it is until " + n.Day + " begins, UTC, and is then stopped"
	case n.Fate == schema.FateStopped:
		return "refused; it is stopped, since its grace was over on " + n.Day
	}
	return "refused; it stays as it is, and takes no change that does not comply"
}
