package decide

import (
	"cmp"
	"fmt"
	"maps"
	"path"
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

// shortTimes warns of times of jobs that a change sets and in which hardly any job gets anything done: mostly the unit is wrong.
func shortTimes(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[schema.Document](c) {
		if is == nil {
			continue
		}
		for _, f := range plan.DocumentFields(was, is) {
			n, err := strconv.Atoi(f.After)
			field := listPath(f.Field)
			switch {
			case err != nil || n < 1:
			case strings.HasSuffix(field, "_time_minutes") && n < 5, strings.HasSuffix(field, ".max_walltime_minutes") && n < 5:
				out = append(out, is.Head().Warning(field, codeShortTime, "a job may run %d min at most: check the unit, which is minutes", n))
			case strings.HasSuffix(field, ".cancel_after_seconds") && n < 60:
				out = append(out, is.Head().Warning(field, codeShortTime, "jobs get %d s until they are cancelled, and then lose what they have not "+
					"saved: check the unit, which is seconds", n))
			}
		}
	}
	return out
}

// listPath returns a path with the items of lists in brackets, as positions have them.
func listPath(field string) string {
	var path string
	for step := range strings.SplitSeq(field, ".") {
		if _, err := strconv.Atoi(step); err == nil {
			path += "[" + step + "]"
		} else {
			path += "." + step
		}
	}
	return strings.TrimPrefix(path, ".")
}

// movedKeys warns of signing keys that a change gives to another login of the same tenant, or of the platform.
func movedKeys(c comparison) (out []schema.Diagnostic) {
	of := map[string]string{} // login, by tenant and key
	for was := range changed[*schema.RoleBinding](c) {
		if was == nil {
			continue
		}
		for _, m := range was.Spec.Members {
			for _, key := range m.SigningKeys {
				of[was.Key.Tenant+" "+strings.TrimSpace(key)] = m.Login
			}
		}
	}
	for _, is := range changed[*schema.RoleBinding](c) {
		if is == nil {
			continue
		}
		for i, m := range is.Spec.Members {
			for k, key := range m.SigningKeys {
				if before := of[is.Key.Tenant+" "+strings.TrimSpace(key)]; before != "" && !strings.EqualFold(before, m.Login) {
					path := fmt.Sprintf("spec.members[%d].signing_keys[%d]", i, k)
					out = append(out, is.Head().Warning(path, codeMovedKey, "the key is %s's until the merge: what it signs then counts as signed by %s",
						before, m.Login))
				}
			}
		}
	}
	return out
}

// lostFallbacks warns of a queue map that a change leaves without a queue for those that it does not list.
func lostFallbacks(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.QueueMap](c) {
		if was == nil || is == nil || was.Spec.FallbackQueue == "" || is.Spec.FallbackQueue != "" ||
			is.EffectiveMode() == schema.ModePassthrough {
			continue
		}
		out = append(out, is.Head().Warning("spec.queues", codeFallback, "jobs for a queue that is not listed here go to %s until the merge, "+
			"and are refused from then on", was.Spec.FallbackQueue))
	}
	return out
}

// otherMaps warns of projects whose queues another map maps after a change. Where the mode changes with it, the rules of
// the modes say so.
func otherMaps(c comparison) (out []schema.Diagnostic) {
	projects := map[[2]*schema.QueueMap][]string{}
	apps := map[string]bool{}
	for was, is := range changed[*schema.QueueMap](c) {
		for _, m := range []*schema.QueueMap{was, is} {
			if m != nil {
				apps[m.Spec.App] = true
			}
		}
	}
	for app := range apps {
		for name, t := range c.after.Tenants {
			for project, p := range t.Projects {
				was, is := c.before.QueueMapOf(app, name, project), c.after.QueueMapOf(app, name, project)
				if p.Entitlements[app] != nil && was != nil && is != nil && was.Key != is.Key && was.EffectiveMode() == is.EffectiveMode() {
					pair := [2]*schema.QueueMap{was, is}
					projects[pair] = append(projects[pair], name+"."+project)
				}
			}
		}
	}
	for m, names := range projects {
		slices.Sort(names)
		at := m[1].At("spec.applies_to")
		if left := c.after.Header(m[0].Key); !touches(c.touched, at.File) && left != nil {
			at = left.At("spec.applies_to")
		} else if left == nil {
			at = m[0].At("") // it is deleted
		}
		out = append(out, at.Warning("spec.applies_to", codeMappedQueue, "the map %s then maps the queues of %s for %s, in place of the map %s",
			m[1].Key.Name, m[1].Spec.App, someOf(names), m[0].Key.Name))
	}
	schema.SortDiagnostics(out)
	return out
}

// someOf lists names, and counts those beyond a few.
func someOf(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// sharedRepositories warns of repositories of a platform's source that a change shares in addition.
func sharedRepositories(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.ArtifactSource](c) {
		if was == nil || is == nil || is.Key.Tenant != "" {
			continue
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
			with := ""
			if is.Spec.Credential != "" {
				with = ", read with the secret " + is.Spec.Credential
			}
			path := fmt.Sprintf("spec.repositories[%d]", i)
			out = append(out, is.Warning(path, "lifecycle.source", "%s may then declare artifacts from %s and below it%s; until now the source "+
				"shares %s", who, r, with,
				cmp.Or(strings.Join(was.Spec.Repositories, ", "), "nothing")))
		}
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
			note := "has no access by this list, and loses none"
			for _, name := range slices.Sorted(maps.Keys(of.Attachments)) {
				if a := of.Attachments[name]; a.Spec.ProjectID == id {
					note = fmt.Sprintf("stays attached by %s, and its jobs go on: delete that document to detach it", a.File)
				}
			}
			found := is.Head().Warning("spec", codeListed, "%s %s", id, note)
			found.Severity = schema.SeverityNote
			out = append(out, found)
		}
	}
	return out
}

// renamedOwners warns of tenants and projects whose directory a change renames, mostly: their name is what runs, so the
// documents of the old name are deleted, and those of the new one are new.
func renamedOwners(c comparison) (out []schema.Diagnostic) {
	added := map[string]bool{}
	var gone, come []string // the documents of tenants and projects
	for _, p := range c.touched {
		key, _ := schema.KeyAt(p.Path)
		isOwner := key.Kind == schema.KindTenant || key.Kind == schema.KindProject
		switch {
		case p.From == "" && isOwner:
			come = append(come, p.Path)
		case p.To == "" && isOwner:
			gone = append(gone, p.Path)
		}
		added[p.Path] = added[p.Path] || p.From == ""
	}
	for _, was := range gone {
		for _, is := range come {
			if path.Base(was) != path.Base(is) {
				continue
			}
			n, all := 0, 0
			for _, p := range c.touched {
				if rest, below := strings.CutPrefix(p.Path, path.Dir(was)+"/"); below && p.To == "" {
					all++
					if added[path.Dir(is)+"/"+rest] {
						n++
					}
				}
			}
			if n > 1 && 2*n > all {
				key, _ := schema.KeyAt(was)
				out = append(out, schema.Diagnostic{Severity: schema.SeverityWarning, Code: codeRenamed, File: was, Line: 1, Column: 1,
					Message: fmt.Sprintf("%s is not renamed by its directory: this deletes it with all that runs there, and %s is a new one: move the "+
						"directory back, and change spec.display_name to show another name",
						key, path.Base(path.Dir(is)))})
			}
		}
	}
	return out
}
