// Package validation checks a whole estate in a directory, as berth validate shows it.
// It must not know flags.
package validation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/policy"
	"berth/schema/signature"
)

// Validation is the result of checking an estate; its JSON is a contract.
type Validation struct {
	Format      string              `json:"format"`
	Diagnostics []schema.Diagnostic `json:"diagnostics"`
	Summary     struct {
		Documents int `json:"documents"`
		Errors    int `json:"errors"`
		Warnings  int `json:"warnings"`
		// Waiting documents are valid but reference an invalid one.
		Waiting int `json:"waiting"`
	} `json:"summary"`

	prefix  string            // of the estate, from the working directory
	tenants map[string]string // directories of tenants' own repositories, by tenant
	skipped []string          // directories and YAML files beside platform/ and tenants/
	// shadowed are the files of the platform's repository that are replaced by files of
	// those directories, sorted.
	shadowed []string
}

// Validate checks the estate in dir, with tenants' documents in directories of their
// own.
func Validate(ctx context.Context, loader *estate.Loader, dir string, tenants map[string]string) (*Validation, error) {
	platform, snap, shadowed, err := open(ctx, dir, tenants)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("validate: %w", err))
	}
	r, err := loadOverBase(ctx, loader, snap, dir)
	if err != nil {
		return nil, err
	}
	if r.Len() == 0 && len(r.Diagnostics) == 0 {
		return nil, cli.Usage(fmt.Errorf("validate: %w", withoutDocuments(dir)))
	}
	effective, decisions := evaluate(r)
	v := &Validation{
		Format: "berth.validate/v1",
		Diagnostics: slices.Concat(r.Diagnostics, r.WithoutEffect(), policy.Findings(decisions), policy.Wider(r.Desired),
			schema.Shadowing(r.Desired),
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
		if !d.Other.IsZero() && d.Other.Says == "" { // every reader of the estate may see both places
			v.Diagnostics[i].Message += fmt.Sprintf(" (%s:%d)", d.Other.File, d.Other.Line)
		}
	}
	schema.SortDiagnostics(v.Diagnostics)
	v.summarize(r)
	v.skipped, err = skipped(dir)
	return v, err
}

// open reads the estate in dir, and puts the documents of tenants in the place of theirs. shadowed are the files that
// are not read for that.
func open(ctx context.Context, dir string, tenants map[string]string) (platform, snap schema.Snapshot, shadowed []string, err error) {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return nil, nil, nil, fmt.Errorf("%s is a file, and documents are checked together: berth validate . checks the estate around it",
			dir)
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, nil, localestate.Missing(dir, "", "DIR")
	}
	if platform, err = estate.Dir(dir); err != nil {
		return nil, nil, nil, err
	}
	if err := estate.HaveTenants(ctx, platform, tenants); err != nil {
		return nil, nil, nil, fmt.Errorf("--tenant: %w", err)
	}
	snap, shadowed, err = estate.WithTenants(ctx, platform, tenants)
	return platform, snap, shadowed, err
}

// withoutDocuments is the error for a directory without an estate.
func withoutDocuments(dir string) error {
	if root, err := localestate.Root(dir, "DIR"); err == nil && !isSame(root, dir) {
		return fmt.Errorf("%s is a part of an estate: berth validate %s checks all of it", dir, root)
	}
	return localestate.Missing(dir, "there are no documents below platform/ or tenants/", "DIR")
}

// skipped lists the directories and YAML files at the top of an estate that belong to no estate, without
// berth.yaml, which berth serve --check checks.
func skipped(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		name := e.Name()
		isYAML := slices.Contains([]string{".yaml", ".yml"}, path.Ext(name))
		if slices.Contains([]string{"platform", "tenants", "berth.yaml"}, name) || strings.HasPrefix(name, ".") || !e.IsDir() && !isYAML {
			continue
		}
		names = append(names, name)
	}
	return names, err
}

// evaluate returns the decisions of policy on an estate.
func evaluate(r *estate.Result) (*schema.Effective, []schema.Decision) {
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
	return effective, decisions
}

// summarize counts the documents and findings.
func (v *Validation) summarize(r *estate.Result) {
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
}

// loadOverBase reads the estate in dir. If documents contradict each other and dir is the work tree of a
// repository, the finding is at the document that its base lacks.
func loadOverBase(ctx context.Context, loader *estate.Loader, snap schema.Snapshot, dir string) (*estate.Result, error) {
	if _, err := gitrepo.Locate(dir); errors.Is(err, gitrepo.ErrSHA256) {
		return nil, err // nothing else would read these documents
	}
	r, err := loader.Load(ctx, snap)
	if err != nil || !r.Contested() && !slices.ContainsFunc(r.Diagnostics, func(d schema.Diagnostic) bool { return !d.Other.IsZero() }) {
		return r, err
	}
	changed := map[string]bool{}
	err = withBase(ctx, dir, func(tree schema.Snapshot) error {
		paths, err := loader.Compare(ctx, tree, snap)
		if err != nil {
			return err
		}
		for _, p := range paths {
			changed[p.Path] = true
		}
		base, err := loader.Load(ctx, tree)
		if err != nil {
			return err
		}
		r, err = loader.LoadOver(ctx, snap, base)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, d := range r.Diagnostics {
		r.Diagnostics[i] = d.At(func(file string) bool { return changed[file] })
	}
	return r, nil
}

// withBase calls read with the tree that changes in the work tree dir are changes of: berth/in-force, else HEAD. It is
// empty without a repository or a commit.
func withBase(ctx context.Context, dir string, read func(schema.Snapshot) error) error {
	root, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if at, err := gitrepo.Locate(dir); err != nil || at.WorkTree != root {
		return read(estate.Files(nil))
	}
	repo, err := gitrepo.OpenLocal(dir)
	if err != nil {
		return err
	}
	defer repo.Close()
	tips, err := repo.Latest(ctx)
	if err != nil {
		return err
	}
	base, name := tips.InForce, reconciler.BranchInForce
	if base == "" {
		name = "HEAD"
		if base, err = repo.Resolve(ctx, name); errors.Is(err, reconciler.ErrNotFound) {
			return read(estate.Files(nil))
		} else if err != nil {
			return err
		}
	}
	tree, err := repo.Snapshot(ctx, base)
	if err == nil {
		err = read(tree)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// file is the path of a finding's file, from the working directory.
func (v *Validation) file(d schema.Diagnostic) string {
	rest, below := strings.CutPrefix(d.File, "tenants/")
	name, in, _ := strings.Cut(rest, "/")
	if dir, own := v.tenants[name]; below && own && in != "tenant.yaml" && !v.shadow(d) {
		return path.Join(dir, in)
	}
	return path.Join(v.prefix, d.File)
}

// shadow reports whether a finding is about a file that another one replaces.
func (v *Validation) shadow(d schema.Diagnostic) bool {
	_, ok := slices.BinarySearch(v.shadowed, d.File)
	return ok && d.Code == estate.CodeShadowed
}

// isSame reports whether two paths are of one directory.
func isSame(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}
