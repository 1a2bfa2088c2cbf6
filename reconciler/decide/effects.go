package decide

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// Codes of warnings about effects that the changed field does not show.
const (
	codeShortTime   = "time.short"
	codeMovedKey    = "user.key-changed"
	codeMappedQueue = "queues.served"
	codeFallback    = "queues.fallback"
	codeListed      = "attachment.listed"
	codeRenamed     = "deletion.renamed"
)

// shortTimes warns of times of jobs that a change sets and in which hardly any job gets anything done: the unit may be wrong.
func shortTimes(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[schema.Document](c) {
		if is == nil || !slices.ContainsFunc(is.Head().Fields, func(f schema.FieldPos) bool { return isJobTime(f.Path) }) {
			continue // encoding each document twice would cost more than the rest
		}
		for _, f := range plan.DocumentFields(was, is) {
			n, err := strconv.Atoi(f.After)
			field := listPath(f.Field)
			switch {
			case err != nil || !isJobTime(field):
			case strings.HasSuffix(field, "seconds") && n > 0 && n < 60:
				out = append(out, is.Head().Warning(field, codeShortTime,
					"jobs get %d s until they are cancelled, and then lose what they have not "+
						"saved: check the unit, which is seconds", n))
			case strings.HasSuffix(field, ".default_time_minutes") && n == 1:
				out = append(out, is.Head().Warning(field, codeShortTime,
					"a job that asks for no time gets 1 min: check the unit, which is minutes"))
			case strings.HasSuffix(field, "minutes") && n == 1:
				out = append(out, is.Head().Warning(field, codeShortTime, "a job may run 1 min at most: check the unit, which is minutes"))
			}
		}
	}
	return out
}

// isJobTime reports whether a field is a time that limits jobs.
func isJobTime(field string) bool {
	return strings.HasPrefix(field, "spec.") && (strings.HasSuffix(field, "_time_minutes") ||
		strings.HasSuffix(field, ".max_walltime_minutes") || strings.HasSuffix(field, ".cancel_after_seconds"))
}

// listPath returns a path with the items of lists in brackets, as positions have them.
func listPath(field string) string {
	var list string
	for step := range strings.SplitSeq(field, ".") {
		if _, err := strconv.Atoi(step); err == nil {
			list += "[" + step + "]"
		} else {
			list += "." + step
		}
	}
	return strings.TrimPrefix(list, ".")
}

// movedKeys warns of signing keys that a change gives to another login of the same tenant, or of the platform.
func movedKeys(c comparison) (out []schema.Diagnostic) {
	of := map[string]string{} // login, by tenant and key
	for was := range changed[*schema.RoleBinding](c) {
		for k := range signingKeys(was) {
			of[was.Key.Tenant+" "+strings.TrimSpace(k.key)] = k.login
		}
	}
	for _, is := range changed[*schema.RoleBinding](c) {
		for k := range signingKeys(is) {
			before := of[is.Key.Tenant+" "+strings.TrimSpace(k.key)]
			keeps := func(b *schema.RoleBinding) bool { return hasKey(b, before, k.key) }
			switch {
			case before == "" || strings.EqualFold(before, k.login):
			case slices.ContainsFunc(bindingsOf(c.after, is.Key.Tenant), keeps):
				out = append(out, is.Head().Warning(k.field, codeMovedKey, "%s has the same key: each person needs their own", before))
			default:
				out = append(out, is.Head().Warning(k.field, codeMovedKey,
					"the key is %s's until the merge: what it signs then counts as signed by %s", before, k.login))
			}
		}
	}
	return out
}

// lostFallbacks warns of a queue map that a change leaves without a queue for those that it does not list.
func lostFallbacks(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.QueueMap](c) {
		if was == nil || is == nil || was.Spec.FallbackQueue == "" || is.Spec.FallbackQueue != "" ||
			was.EffectiveMode() == schema.ModePassthrough || is.EffectiveMode() == schema.ModePassthrough {
			continue
		}
		out = append(out, is.Head().Warning("spec.queues", codeFallback,
			"jobs for a queue that is not listed here go to %s until the merge, "+
				"and are refused from then on", was.Spec.FallbackQueue))
	}
	return out
}

// mapPair are the queue maps that map the queues of a project before and after a change.
type mapPair struct{ was, is *schema.QueueMap }

// otherMaps warns of projects whose queues another map maps after a change. Where the mode changes with it, the rules of
// the modes say so.
func otherMaps(c comparison) (out []schema.Diagnostic) {
	for m, names := range remappedProjects(c) {
		slices.Sort(names)
		at := m.is.At("spec.applies_to")
		if left := c.after.Header(m.was.Key); !touches(c.touched, at.File) && left != nil {
			at = left.At("spec.applies_to")
		} else if !touches(c.touched, at.File) {
			at = m.was.At("") // it is deleted
		}
		out = append(out, at.Warning("spec.applies_to", codeMappedQueue,
			"the map %s then maps the queues of %s for %s, in place of the map %s",
			m.is.Key.Name, m.is.Spec.App, someOf(names), m.was.Key.Name))
	}
	schema.SortDiagnostics(out)
	return out
}

// remappedProjects returns the projects whose queues another map of the same mode maps after a change, by both maps.
func remappedProjects(c comparison) map[mapPair][]string {
	apps := map[string]bool{}
	for was, is := range changed[*schema.QueueMap](c) {
		apps[cmp.Or(was, is).Spec.App], apps[cmp.Or(is, was).Spec.App] = true, true
	}
	projects := map[mapPair][]string{}
	before, after := c.before.QueueMaps(), c.after.QueueMaps()
	for name, t := range c.after.Tenants {
		for project, p := range t.Projects {
			for app := range p.Entitlements {
				if !apps[app] {
					continue
				}
				m := mapPair{schema.QueueMapAmong(before, app, name, project), schema.QueueMapAmong(after, app, name, project)}
				if m.otherRules() {
					projects[m] = append(projects[m], name+"."+project)
				}
			}
		}
	}
	return projects
}

// otherRules reports whether the second map is another one, of the same mode and with other rules.
func (m mapPair) otherRules() bool {
	return m.was != nil && m.is != nil && m.was.Key != m.is.Key && m.was.EffectiveMode() == m.is.EffectiveMode() &&
		!reflect.DeepEqual(m.was.Spec, m.is.Spec)
}

// someOf lists names, and counts those beyond a few.
func someOf(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

const (
	codeSource        = "lifecycle.source"
	fieldRepositories = "spec.repositories"
)

// sharedRepositories warns of repositories that projects gain or lose by a change of a platform's source. Without
// repositories all is allowed, and read without the secret (policy.ReferenceAllowed); a source of files then shares nothing.
func sharedRepositories(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.ArtifactSource](c) {
		if was == nil || is == nil || is.Key.Tenant != "" {
			continue
		}
		secret := ""
		if is.Spec.Credential != "" {
			secret = "read with the secret " + is.Spec.Credential
		}
		wasOpen, isOpen := len(was.Spec.Repositories) == 0, len(is.Spec.Repositories) == 0
		switch {
		case is.Spec.Type == schema.SourceFile || wasOpen == isOpen:
			out = append(out, moreRepositories(was, is, secret)...)
		case isOpen:
			out = append(out, is.Warning("spec", codeSource, "every project may then declare any artifact of %s, read without a secret",
				is.Spec.Host))
		default:
			inside := ""
			if secret != "" {
				inside = "; those inside are then " + secret
			}
			out = append(out, is.Warning(fieldRepositories, codeSource,
				"artifacts outside these repositories are refused from the merge on; "+
					"until then every project may declare any artifact of %s%s", is.Spec.Host, inside))
		}
	}
	return out
}

// moreRepositories warns of each repository that a source did not share before.
func moreRepositories(was, is *schema.ArtifactSource, secret string) (out []schema.Diagnostic) {
	if secret != "" {
		secret = ", " + secret
	}
	for i, r := range is.Spec.Repositories {
		covered := slices.ContainsFunc(was.Spec.Repositories, func(old string) bool { return r == old || strings.HasPrefix(r, old+"/") })
		if covered {
			continue
		}
		who := "every project of every tenant"
		switch {
		case strings.Contains(r, "{project}"):
			who = "each project"
		case strings.Contains(r, "{tenant}"):
			who = "every project of a tenant"
		}
		out = append(out, is.Warning(fmt.Sprintf("%s[%d]", fieldRepositories, i), codeSource,
			"%s may then declare artifacts from %s and below "+
				"it%s; until now the source shares %s", who, r, secret, cmp.Or(strings.Join(was.Spec.Repositories, ", "), "nothing")))
	}
	return out
}

// listedProjects notes what becomes of the projects that a change takes out of attached_project_ids.
func listedProjects(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.SharedRuntime](c) {
		if was == nil || is == nil {
			continue
		}
		of := c.after.SharedRuntime(is.Key.Tenant, is.Key.Name)
		for _, id := range was.Spec.AttachedProjectIDs {
			if of == nil || slices.Contains(is.Spec.AttachedProjectIDs, id) {
				continue
			}
			note := "keeps the access that it has: attached_project_ids gives none"
			if all := attachmentsOf(of, id); len(all) > 0 {
				note = fmt.Sprintf("stays attached by %s, and its jobs go on: delete that document to detach it", all[len(all)-1].File)
			}
			out = append(out, as(schema.SeverityNote, is.Head().Warning("spec", codeListed, "%s %s", id, note)))
		}
	}
	return out
}

// attachmentsOf returns the attachments of a project to a shared runtime, sorted by name.
func attachmentsOf(r *schema.SharedRuntimeEstate, project string) (out []*schema.Attachment) {
	for _, name := range slices.Sorted(maps.Keys(r.Attachments)) {
		if a := r.Attachments[name]; a.Spec.ProjectID == project {
			out = append(out, a)
		}
	}
	return out
}

// renamedOwners warns of tenants and projects whose directory a change renames: their name is what runs, so the documents of
// the old name are deleted, and those of the new one are new. Most files of a renamed directory are the same in both.
func renamedOwners(c comparison) (out []schema.Diagnostic) {
	gone := map[string]string{} // paths of deleted documents of owners, by directory
	for _, p := range c.touched {
		if key, _ := schema.KeyAt(p.Path); p.To == "" && (key.Kind == schema.KindTenant || key.Kind == schema.KindProject) {
			gone[path.Dir(p.Path)] = p.Path
		}
	}
	added := addedFiles(c.touched)
	for _, dir := range slices.Sorted(maps.Keys(gone)) {
		if tenant, _, inProject := strings.Cut(dir, "/projects/"); inProject && gone[tenant] != "" {
			continue // it goes with its tenant
		}
		key, _ := schema.KeyAt(gone[dir])
		if is := newDir(gone[dir], c.touched, added); is != "" {
			out = append(out, as(schema.SeverityWarning, errorAt(gone[dir], codeRenamed,
				fmt.Sprintf("this deletes %s with all that runs there, as its directory is its name: move %s back, and change "+
					"spec.display_name to show another name", key, is))))
		}
	}
	return out
}

// ownedFile is a file of a tenant or project: its path below that one's directory, and its blob.
type ownedFile struct{ rest, blob string }

// addedFiles returns the directories of tenants and projects to which a change adds a file, by the file.
func addedFiles(touched []schema.PathChange) map[ownedFile][]string {
	const most = 10 // directories with the same file: more say nothing about one of them
	dirs := map[ownedFile][]string{}
	for _, p := range touched {
		for dir, rest := range ownerDirs(p.Path) {
			if f := (ownedFile{rest, p.To}); p.From == "" && len(dirs[f]) < most {
				dirs[f] = append(dirs[f], dir)
			}
		}
	}
	return dirs
}

// newDir returns the directory that gets most of the files that a change deletes beside the document of an owner; "" if
// none does.
func newDir(owner string, touched []schema.PathChange, added map[ownedFile][]string) string {
	all, same := 0, map[string]int{} // same: files by directory
	dir := path.Dir(owner) + "/"
	first, _ := slices.BinarySearchFunc(touched, dir, func(p schema.PathChange, dir string) int { return strings.Compare(p.Path, dir) })
	for _, p := range touched[first:] {
		rest, isBelow := strings.CutPrefix(p.Path, dir)
		if !isBelow {
			break
		}
		if p.Path == owner || p.To != "" {
			continue
		}
		all++
		for _, is := range added[ownedFile{rest, p.From}] {
			same[is]++
		}
	}
	for _, is := range slices.Sorted(maps.Keys(same)) {
		if 2*same[is] > all {
			return is
		}
	}
	return ""
}

// ownerDirs yields the directories of the tenant and the project to which a path belongs, each with the path below it.
func ownerDirs(file string) iter.Seq2[string, string] {
	return func(yield func(dir, rest string) bool) {
		parts := strings.Split(file, "/")
		if parts[0] != "tenants" {
			return
		}
		for depth := 2; depth < len(parts) && (depth == 2 || parts[2] == "projects"); depth += 2 {
			if depth > 4 || !yield(strings.Join(parts[:depth], "/"), strings.Join(parts[depth:], "/")) {
				return
			}
		}
	}
}
