package composed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

// maxRemark bounds one notice in bytes.
const maxRemark = 500

// Notices returns the notices of the last fetch about tenants' repositories,
// sorted. They report refused repositories, ignored files in the platform's
// repository and repositories with several owners.
func (c *Composed) Notices() []string {
	c.composer.mu.RLock()
	defer c.composer.mu.RUnlock()
	out := slices.Clone(c.composer.remarks)
	for t, err := range c.composer.refused {
		out = append(out, fmt.Sprintf("tenant %s: its repository was not composed, and its tenant tree stays as last composed: %v", t, err))
	}
	for i, line := range out {
		out[i] = object.OneLine(line, maxRemark) // names and responses of a remote may be long
	}
	slices.Sort(out)
	return out
}

// remark collects notices about the repositories of tenants in force, except
// refused ones.
func (w *composing) remark(ctx context.Context, listed map[string]*TenantRepository) {
	var out []string
	of := map[string]string{schema.RepositoryPlace(w.repo.Options.URL): "the platform"} // owner by repository
	for _, t := range slices.Sorted(maps.Keys(listed)) {
		url := schema.RepositoryPlace(listed[t].URL)
		if other, taken := of[url]; taken {
			out = append(out, fmt.Sprintf("tenant %s: %s is also the repository of %s: users with push access there act for both; give "+
				"each its own repository", t, gitrepo.Redact(listed[t].URL), other))
			continue
		}
		of[url] = "tenant " + t
	}
	if len(w.st.tenants) > 0 {
		shadowed, err := w.shadowed()
		if err != nil { // a notice must not fail the fetch
			w.repo.Options.Log.WarnContext(ctx, "files ignored in the platform's repository could not be listed", "error", err)
		}
		out = append(out, shadowed...)
	}
	w.mu.Lock()
	news := !slices.Equal(out, w.remarks)
	w.remarks = out
	w.mu.Unlock()
	for _, line := range out {
		if news {
			w.repo.Options.Log.WarnContext(ctx, "problem with a tenant repository", "notice", line)
		}
	}
}

// shadowed returns a notice for each tenant with its own repository that has
// files besides tenant.yaml in the platform's repository.
func (w *composing) shadowed() ([]string, error) {
	last, err := w.repo.Commit(w.st.platform)
	if err != nil {
		return nil, err
	}
	b := builder{repo: w.repo.Reader}
	top, err := b.tree(last.Tree)
	if err != nil {
		return nil, err
	}
	tenants, err := b.tenantsDirectory(top)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range slices.Sorted(maps.Keys(w.st.tenants)) {
		dir := findEntry(tenants, t)
		if !dir.IsDir() {
			continue
		}
		entries, err := b.tree(dir.ID)
		if err != nil {
			return nil, err
		}
		var names []string
		for _, e := range entries {
			if e.Name != tenantFile {
				names = append(names, e.Name)
			}
		}
		if len(names) > 0 {
			out = append(out, fmt.Sprintf("tenant %s: %s in %s/%s of the platform's repository is ignored, because the tenant has its "+
				"own repository: move it there, or delete it",
				t, few(names), object.TenantsDir, t))
		}
	}
	return out, nil
}

// Shadowed returns the files that head changes in the platform's repository and
// that Berth ignores, because their tenant has its own repository.
func (c *Composed) Shadowed(ctx context.Context, base, head string) ([]string, error) {
	h, err := object.ParseID(base)
	if err != nil {
		return nil, fmt.Errorf("shadowed: %w", err)
	}
	st, ok := c.composer.stateOf(h)
	if !ok || len(st.tenants) == 0 {
		return nil, nil
	}
	from, err := c.MergeBase(ctx, st.platform.String(), head)
	if errors.Is(err, reconciler.ErrNotFound) && c.RequireCommits(head) == nil {
		return nil, nil // the caller reports the missing common history
	}
	if err != nil {
		return nil, err
	}
	changes, err := c.Diff(ctx, from, head)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, change := range changes {
		below, ok := strings.CutPrefix(change.Path, object.TenantsDir+"/")
		tenant, file, _ := strings.Cut(below, "/")
		if _, own := st.tenants[tenant]; ok && own && change.To != "" && file != tenantFile {
			out = append(out, change.Path)
		}
	}
	return out, nil
}

// few joins names and shortens a long list.
func few(names []string) string {
	const most = 5
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}
