package decide

import (
	"fmt"
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
		} else if unit := head.effective.Unit(key); unit != nil && unit.SharedRuntime == "" {
			out = append(out, d.configWithoutEffect(unit, head, today)...)
		}
	}
	return out
}

// configWithoutEffect is configsWithoutEffect for one unit.
func (d *Decider) configWithoutEffect(unit *schema.EffectiveUnit, head *forced, today string) (out []schema.Diagnostic) {
	inForce := head.Result.Desired
	v, h := inForce.Version(unit.Key.Tenant, unit.App, unit.Version), inForce.Header(unit.Key)
	if v == nil || h == nil {
		return nil
	}
	warn := func(path, code, format string, args ...any) {
		if path = "spec.config." + path; h.Has(path) { // else the version has it
			out = append(out, h.Warning(path, code, format, args...))
		}
	}
	facts := d.o.Loader.ConfigFacts(v, unit.Config)
	for _, p := range facts.NoEffect {
		warn(p.Path, estate.CodeNoEffect, "%s", p.Message)
	}
	for _, n := range facts.Names {
		if code, message := nameWithoutEffect(n, unit, head.Main.Desired); code != "" {
			warn(n.Path, code, "%s", message)
		}
	}
	ended(warn, facts.Ends, today)
	return out
}

// nameWithoutEffect says why a name in the config of a unit has no effect; "" if it has one, or if the loader says so.
func nameWithoutEffect(n schema.ConfigName, unit *schema.EffectiveUnit, desired *schema.Desired) (code, message string) {
	attached := slices.ContainsFunc(unit.Attachments, func(a schema.EffectiveAttachment) bool { return a.ProjectID == n.Name })
	switch {
	case n.Sort == schema.UserName:
		var users []string
		for _, u := range unit.Users {
			users = append(users, u.Name)
		}
		if !slices.Contains(users, n.Name) {
			return codeNoUser, fmt.Sprintf("%s is not a user of %s%s", n.Name, unit.Key, estate.Meant(n.Name, users))
		}
	case n.Sort == schema.ReservedName && attached:
		return codeProjectName, n.Name + " is the id of an attached project; use another name"
	case n.Sort != schema.ProjectName:
	case unit.Key.Kind == schema.KindInstance:
		return estate.CodeNoEffect, fmt.Sprintf("%s has no account of the project %s: it is the cluster of one project", unit.Key, n.Name)
	case !isProject(desired, n.Name):
		return "ref.missing-project", "there is no project " + n.Name
	case !attached:
		return "ref.not-attached", fmt.Sprintf("%s is not attached to %s, or has not accepted its terms, and has no account there",
			n.Name, unit.Key.Name)
	}
	return "", ""
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
		if of := after.SharedRuntime(shared.Tenant, shared.Name); of != nil {
			for _, a := range attachmentsOf(of, key.ProjectID()) {
				out = append(out, limitsBeyond(i, &a.Spec.SubmissionPolicy.SubmissionLimits)...)
			}
		}
	}
	return out
}

// limitsBeyond warns of each limit of an instance that most is narrower than.
func limitsBeyond(i *schema.Instance, most *schema.SubmissionLimits) (out []schema.Diagnostic) {
	own := i.Spec.SubmissionLimits
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
		if l.most > 0 && l.own > l.most {
			out = append(out, i.Head().Warning("spec.submission_limits."+l.field, estate.CodeNoEffect,
				"is %d, and the terms of the project allow %d", l.own, l.most))
		}
	}
	return out
}
