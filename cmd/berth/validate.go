package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/watch"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/policy"
	"berth/schema/signature"
)

func newValidateCmd() *cobra.Command {
	var (
		output string
		again  bool
		own    map[string]string
	)
	cmd := &cobra.Command{
		Use:   "validate [DIR]",
		Short: "Check a whole estate",
		Long: `Check a whole estate: every document, the references between documents, and the
instances against policy. A warning is about a document that can never run, has no
effect yet, or proves nothing.

With --tenant NAME=DIR, the documents of that tenant are read from its own repository
in DIR, except tenant.yaml.

If documents of two tenants contradict each other, the finding names both. If DIR is
a clone that has berth/in-force, the finding is at the document that is not in force.

With --watch, check it again whenever a file changes, until interrupted.

Exit status: 0 no errors, whatever the warnings, 1 errors, 2 usage; with --watch 0.`,
		Example: `  berth validate .
  berth validate -o github .
  berth validate --watch .`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			// A short process: memory is cheaper than garbage collection, up to a limit.
			debug.SetGCPercent(400)
			debug.SetMemoryLimit(256 << 20)
			loader, err := estate.New(estate.Options{Backends: backends.Definitions()})
			if err != nil {
				return err
			}
			once := func() error {
				v, err := validate(cmd.Context(), loader, dir, own)
				if err != nil {
					return err
				}
				if err := v.write(cmd.OutOrStdout(), output); err != nil {
					return err
				}
				if v.Summary.Errors > 0 {
					return cli.Exit(1)
				}
				return nil
			}
			if !again {
				return once()
			}
			return watch.Repeat(cmd.Context(), watch.Command{
				Name: dir, Run: once, IsText: output == "text", Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
				Scan: func() (watch.Files, error) { return watch.Estate(dir, slices.Collect(maps.Values(own))...) },
			})
		},
	}
	cli.OutputFlag(cmd, &output, findingForms()...)
	cmd.Flags().StringToStringVar(&own, "tenant", nil, "NAME=DIR: a tenant whose documents are in a directory of their own; may be repeated")
	cmd.Flags().BoolVar(&again, "watch", false, "check again whenever a file changes")
	return cmd
}

// validate checks the estate in dir, with tenants' documents in directories of their
// own.
func validate(ctx context.Context, loader *estate.Loader, dir string, tenants map[string]string) (*validation, error) {
	platform, err := estate.Dir(dir)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("validate: %w", err))
	}
	snap, shadowed, err := estate.WithTenants(ctx, platform, tenants)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("validate: %w", err))
	}
	r, err := loadOverInForce(ctx, loader, snap, dir)
	if err != nil {
		return nil, err
	}
	if r.Len() == 0 && len(r.Diagnostics) == 0 {
		return nil, cli.Usage(fmt.Errorf("validate: no estate in %s: there are no documents below platform/ or tenants/", dir))
	}
	// Instances in a directory may already run, so rules for new instances only are not
	// applied.
	effective := policy.Evaluate(r.Desired, policy.Existing(func(schema.Key) bool { return true }))
	decisions := effective.Decisions()
	if slices.ContainsFunc(r.Diagnostics, func(d schema.Diagnostic) bool {
		return d.Severity == schema.SeverityError && strings.HasPrefix(d.File, "platform/policy/")
	}) {
		// The invalid policy may be the one that allows the source of an artifact.
		decisions = slices.DeleteFunc(decisions, func(d schema.Decision) bool {
			return d.Rule == "artifact_source_allowlist" && strings.HasPrefix(d.Source.File, "platform/artifact-sources")
		})
	}
	v := &validation{
		Format: "berth.validate/v1",
		Diagnostics: slices.Concat(r.Diagnostics, r.WithoutEffect(), policy.Findings(decisions), policy.Wider(r.Desired),
			signature.Findings(r.Desired, func(string) bool { return true }),
			new(policy.CapacityChecker).Check(r.Desired, effective, r.AllNodes())),
	}
	places, err := estate.Repositories(ctx, platform, tenants, r.Desired)
	if err != nil {
		return nil, err
	}
	v.Diagnostics = append([]schema.Diagnostic{}, slices.Concat(v.Diagnostics, places)...) // never null in JSON
	v.tenants, v.shadowed = map[string]string{}, shadowed
	for name, at := range tenants {
		v.tenants[name] = filepath.ToSlash(filepath.Clean(at))
	}
	if !filepath.IsAbs(dir) {
		v.prefix = filepath.ToSlash(filepath.Clean(dir))
	}
	for i, d := range v.Diagnostics {
		if !d.Other.IsZero() { // a user who can read the estate may see both places
			v.Diagnostics[i].Message += fmt.Sprintf(" (%s:%d)", d.Other.File, d.Other.Line)
		}
	}
	schema.SortDiagnostics(v.Diagnostics)
	v.Summary.Documents = r.Len()
	wrong := map[string]bool{}
	for _, d := range v.Diagnostics {
		switch d.Severity {
		case schema.SeverityError:
			v.Summary.Errors++
			wrong[d.File] = true
		case schema.SeverityWarning:
			v.Summary.Warnings++
		}
	}
	for file := range r.Needs {
		if !wrong[file] {
			v.Summary.Waiting++
		}
	}
	return v, nil
}

// loadOverInForce reads the estate in dir. If documents contradict each other and dir
// is the work tree of a repository that has berth/in-force, the finding is at the
// document that is not in force.
func loadOverInForce(ctx context.Context, loader *estate.Loader, snap schema.Snapshot, dir string) (*estate.Result, error) {
	r, err := loader.Load(ctx, snap)
	if err != nil || !r.Contested() {
		return r, err
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if at, err := gitrepo.Locate(dir); err != nil || at.WorkTree != root {
		return r, nil // validating a directory needs no repository
	}
	repo, err := gitrepo.OpenLocal(dir)
	if err != nil {
		return nil, err
	}
	defer repo.Close()
	tips, err := repo.Latest(ctx)
	if err != nil || tips.InForce == "" {
		return r, err
	}
	tree, err := repo.Snapshot(ctx, tips.InForce)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", reconciler.BranchInForce, err)
	}
	inForce, err := loader.Load(ctx, tree)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", reconciler.BranchInForce, err)
	}
	return loader.LoadOver(ctx, snap, inForce)
}
