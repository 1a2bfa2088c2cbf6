package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/load"
)

// StatusFilter selects resources; an empty field selects all.
type StatusFilter struct {
	Project string // TENANT.PROJECT
	Phase   string
	Site    string // units with a member on a node of the site, and its nodes
	Failed  bool   // resources that are not ready, and held documents
}

// Check checks the phase.
func (f StatusFilter) Check() error {
	var phases []string
	for _, p := range plan.Phases() {
		phases = append(phases, string(p))
	}
	switch like := load.Nearest(f.Phase, phases); {
	case f.Phase == "" || slices.Contains(phases, f.Phase):
		return nil
	case like != "":
		return fmt.Errorf("--phase: unknown phase %q: did you mean %q?", f.Phase, like)
	}
	return fmt.Errorf("--phase: unknown phase %q; choose one of %s", f.Phase, strings.Join(phases, ", "))
}

func (f StatusFilter) takes(s ResourceStatus) bool {
	return (f.Project == "" || s.Key.ProjectID() == f.Project) && (f.Phase == "" || s.Phase == f.Phase) && (!f.Failed || s.isTrouble())
}

// takesHeld reports whether a held document is of the project. It has no phase.
func (f StatusFilter) takesHeld(h schema.Held) bool {
	tenant, project, _ := strings.Cut(f.Project, ".")
	return f.Phase == "" && f.Site == "" && (f.Project == "" || strings.HasPrefix(h.File, "tenants/"+tenant+"/projects/"+project+"/"))
}

// isAt reports whether a resource is a node of a site, or has a member on one.
func (s ResourceStatus) isAt(p *schema.Platform, site *schema.Site) bool {
	has := func(node string) bool {
		n := p.Nodes[node]
		return n != nil && slices.Contains(site.Spec.Regions, n.Spec.Region)
	}
	return s.Key.Kind == schema.KindNode && has(s.Key.Name) ||
		slices.ContainsFunc(s.Members, func(m memberStatus) bool { return has(m.Node) })
}

// isTrouble reports whether a resource needs attention: it is not ready, or nothing goes on by
// itself.
func (s ResourceStatus) isTrouble() bool {
	return s.Stalled || s.Ready == plan.ConditionFalse || s.Ready == plan.ConditionUnknown || s.Phase == string(plan.PhaseFailed)
}

// Filter leaves the resources that a filter selects. A project without resources here is an error
// if no document in force declares it.
func (o *Overview) Filter(f StatusFilter, inForce *schema.Desired) error {
	known := wanted(map[string]string{"project": f.Project})
	sites := inForce.Platform.Sites()
	if f.Site != "" && sites[f.Site] == nil {
		return fmt.Errorf("no site %q is in force; the sites are: %s", f.Site, strings.Join(slices.Sorted(maps.Keys(sites)), ", "))
	}
	for _, list := range []*[]ResourceStatus{&o.Instances, &o.Shared, &o.Resources} {
		*list = slices.DeleteFunc(*list, func(s ResourceStatus) bool {
			known.add("project", s.Key.ProjectID())
			return !f.takes(s) || f.Site != "" && !s.isAt(inForce.Platform, sites[f.Site])
		})
	}
	o.Held = slices.DeleteFunc(o.Held, func(h schema.Held) bool { return !f.takesHeld(h) })
	known.addUnits(inForce)
	return known.check("resource")
}

// Filter leaves the resources of a list that a filter selects and that have all the labels. It returns an
// error if no document belongs to the project, or none of the list has a label of that name.
func (e *Estate) Filter(l *List, f StatusFilter, labels map[string]string) error {
	known := wanted(map[string]string{"project": f.Project})
	for key := range e.files {
		if key.Project != "" {
			known.add("project", key.ProjectID())
		}
	}
	if err := known.check("document"); err != nil {
		return err
	}
	if err := l.checkLabels(labels); err != nil {
		return err
	}
	l.Items = slices.DeleteFunc(l.Items, func(r *Resource) bool {
		s := ResourceStatus{Key: r.Key}
		if r.Status != nil {
			s = *r.Status
		}
		return !f.takes(s) || !r.hasLabels(labels)
	})
	return nil
}

// checkLabels returns an error if no document of the list has a label of a name that is asked for.
func (l *List) checkLabels(labels map[string]string) error {
	if len(l.Items) == 0 {
		return nil
	}
	for name := range labels {
		known := wanted(map[string]string{"label": name})
		for _, r := range l.Items {
			for has := range r.labels() {
				known.add("label", has)
			}
		}
		if err := known.check("document"); err != nil {
			return err
		}
	}
	return nil
}

// labels returns those of the document.
func (r *Resource) labels() map[string]string {
	var doc struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(r.Document, &doc); err != nil {
		return nil // it is not in the form of a document
	}
	return doc.Metadata.Labels
}

// hasLabels reports whether the document has all the labels.
func (r *Resource) hasLabels(labels map[string]string) bool {
	if len(labels) == 0 {
		return true
	}
	has := r.labels()
	for name, value := range labels {
		if got, ok := has[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// troubleFirst returns the resources that need attention, then the others, each in their order.
func troubleFirst(all []ResourceStatus) []ResourceStatus {
	return slices.SortedStableFunc(slices.Values(all), func(a, b ResourceStatus) int {
		rank := func(s ResourceStatus) int {
			if s.isTrouble() {
				return 0
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
}
