package decide

import (
	"maps"
	"slices"
	"strings"
	"time"

	"berth/schema"
	"berth/schema/estate"
)

// Codes of warnings about fields of a config that have no effect.
const (
	codeNoUser = "ref.missing-user"
	// codeProjectName: a name of the config is taken by that of an attached project.
	codeProjectName = "conflict.project-name"
	codePast        = "date.past"
	codeFar         = "date.far"
)

// configsWithoutEffect warns of names in the configs of changed units that are not users of the unit, or
// projects, and of settings whose time is over, such as a reservation. The loader knows neither the projects
// that a shared runtime serves, nor the day.
func (d *Decider) configsWithoutEffect(touched []schema.PathChange, head *forced, today string) (out []schema.Diagnostic) {
	for _, c := range touched {
		key, _ := schema.KeyAt(c.Path)
		if v, isVersion := head.Main.Desired.Document(key).(*schema.AppVersion); isVersion {
			out = append(out, d.parametersWithoutEffect(v, head.Main.Desired, today)...)
			continue
		}
		unit := head.effective.Unit(key)
		if unit == nil || unit.SharedRuntime != "" {
			continue
		}
		v, h := head.Result.Desired.Version(key.Tenant, unit.App, unit.Version), head.Result.Desired.Header(key)
		if v == nil || h == nil {
			continue
		}
		warn := func(path, code, format string, args ...any) {
			if path = "spec.config." + path; h.Has(path) { // else the version has it
				out = append(out, h.Warning(path, code, format, args...))
			}
		}
		facts := d.o.Loader.ConfigFacts(v, unit.Config)
		users := make([]string, len(unit.Users))
		for i, u := range unit.Users {
			users[i] = u.Name
		}
		for _, p := range facts.NoEffect {
			warn(p.Path, estate.CodeNoEffect, "%s", p.Message)
		}
		for _, n := range facts.Names {
			switch {
			case n.Sort == schema.UserName && !slices.Contains(users, n.Name):
				warn(n.Path, codeNoUser, "%s is not a user of %s%s", n.Name, key, estate.Meant(n.Name, users))
			case n.Sort == schema.ReservedName &&
				slices.ContainsFunc(unit.Attachments, func(a schema.EffectiveAttachment) bool { return a.ProjectID == n.Name }):
				warn(n.Path, codeProjectName, "%s is the id of an attached project; use another name", n.Name)
			case n.Sort == schema.ProjectName && key.Kind == schema.KindInstance:
				warn(n.Path, estate.CodeNoEffect, "%s has no account of the project %s: it is the cluster of one project", key, n.Name)
			case n.Sort == schema.ProjectName && !isProject(head.Main.Desired, n.Name):
				warn(n.Path, "ref.missing-project", "there is no project %s", n.Name)
			case n.Sort == schema.ProjectName &&
				!slices.ContainsFunc(unit.Attachments, func(a schema.EffectiveAttachment) bool { return a.ProjectID == n.Name }):
				warn(n.Path, "ref.not-attached", "%s is not attached to %s, or has not accepted its terms, and has no account there",
					n.Name, key.Name)
			}
		}
		ended(warn, facts.Ends, today)
	}
	return out
}

// ended warns of settings whose time is over, or years away.
func ended(warn func(path, code, format string, args ...any), ends []schema.ConfigEnd, today string) {
	for _, end := range ends {
		switch day := end.At.UTC().Format(time.DateOnly); {
		case day < today:
			warn(end.Path, codePast, "%s ended on %s and has no effect: change its time, or take it away", end.What, day)
		case day > farDay(today):
			warn(end.Path, codeFar, "%s ends on %s, more than %d years ahead: check the year", end.What, day, farAhead)
		}
	}
}

// parametersWithoutEffect is configsWithoutEffect for the parameters of a version, which each new unit gets. A version
// in use cannot be corrected. Fields that others make useless are left out: a unit may set the others.
func (d *Decider) parametersWithoutEffect(v *schema.AppVersion, desired *schema.Desired, today string) (out []schema.Diagnostic) {
	warn := func(path, code, format string, args ...any) {
		out = append(out, v.Head().Warning("spec.manifest.parameters."+path, code, format, args...))
	}
	facts := d.o.Loader.ConfigFacts(v, v.Spec.Manifest.Parameters)
	nodes := slices.Sorted(maps.Keys(desired.Platform.Nodes))
	for _, n := range facts.Names {
		if n.Sort == schema.NodeName && !slices.Contains(nodes, n.Name) {
			warn(n.Path, "ref.no-node", "no node has the name %s%s", n.Name, estate.Meant(n.Name, nodes))
		}
	}
	ended(warn, facts.Ends, today)
	return out
}

// isProject reports whether an id is that of a project.
func isProject(d *schema.Desired, id string) bool {
	tenant, project, _ := strings.Cut(id, ".")
	return d.Tenants[tenant] != nil && d.Tenants[tenant].Projects[project] != nil
}

// widerLimits warns of limits of changed instances that the terms of their project are narrower than.
func widerLimits(touched []schema.PathChange, after *schema.Desired) (out []schema.Diagnostic) {
	for _, c := range touched {
		key, _ := schema.KeyAt(c.Path)
		i := after.Instance(key)
		if key.Kind != schema.KindInstance || i == nil || i.Spec.SubmissionLimits == nil {
			continue
		}
		shared := schema.SharedRuntimeKey(key.Tenant, i.Spec.ControlPlaneScope, i.Spec.SharedRuntime)
		of := after.SharedRuntime(shared.Tenant, shared.Name)
		if of == nil {
			continue
		}
		for _, a := range of.Attachments {
			if a.Spec.ProjectID != key.ProjectID() {
				continue
			}
			own, most := i.Spec.SubmissionLimits, &a.Spec.SubmissionPolicy.SubmissionLimits
			for _, l := range []struct {
				field     string
				own, most int
			}{
				{"max_gpus", own.MaxGPUs, most.MaxGPUs}, {"max_cpus", own.MaxCPUs, most.MaxCPUs},
				{"max_gpus_per_job", own.MaxGPUsPerJob, most.MaxGPUsPerJob}, {"max_cpus_per_job", own.MaxCPUsPerJob, most.MaxCPUsPerJob},
				{"max_running_jobs", own.MaxRunningJobs, most.MaxRunningJobs},
				{"max_submitted_jobs", own.MaxSubmittedJobs, most.MaxSubmittedJobs},
				{"max_walltime_minutes", own.MaxWalltimeMinutes, most.MaxWalltimeMinutes},
			} {
				if path := "spec.submission_limits." + l.field; l.most > 0 && l.own > l.most {
					out = append(out, i.Head().Warning(path, estate.CodeNoEffect, "is %d, and the terms of the project allow %d", l.own,
						l.most))
				}
			}
		}
	}
	return out
}
