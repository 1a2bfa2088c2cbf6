package loop

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/schema"
	"berth/schema/estate"
)

// What is declared and carries others, a SharedRuntime and its attachments, has
// a life of its own on berth/status although no runtime can make one yet: it is
// requested while it is declared, and gone when it is not (requirements D1, D2).

// standing is the detail of their statuses: by the names of their events.
type standing struct {
	AppSlug           string `json:"app_slug"`
	ProjectID         string `json:"project_id,omitempty"` // of an attachment
	OperatingMode     string `json:"operating_mode"`
	ControlPlaneScope string `json:"control_plane_scope"`
	RuntimeBackend    string `json:"runtime_backend"`
	BillingPolicyRef  string `json:"billing_policy_ref,omitempty"`
	RuntimeUID        string `json:"shared_runtime_uid,omitempty"` // of an attachment, if its shared runtime has one
	Declared          string `json:"declared"`                     // blob of the document

	uid         string     // its own
	suspendedBy schema.Key // the widest document that says suspend: true; zero: none does
}

// standings are the shared runtimes and attachments that are in force of an
// owner: a tenant, or "", the platform.
func standings(d *schema.Desired, owner string) map[schema.Key]standing {
	out := map[schema.Key]standing{}
	var tenant *schema.Header
	add := func(all map[string]*schema.SharedRuntimeEstate) {
		for _, s := range all {
			if s.Runtime == nil {
				continue
			}
			spec := &s.Runtime.Spec
			of := standing{AppSlug: spec.App, OperatingMode: spec.OperatingMode, ControlPlaneScope: spec.ControlPlaneScope, Declared: s.Runtime.Blob, uid: s.Runtime.UID}
			if v := d.Version(spec.App, spec.Version); v != nil {
				of.RuntimeBackend = v.Spec.RuntimeBackend
			}
			of.suspendedBy = suspender(tenant, &s.Runtime.Header)
			out[s.Runtime.Key] = of
			for _, a := range s.Attachments {
				at := of
				at.ProjectID, at.BillingPolicyRef, at.Declared = a.Spec.ProjectID, a.Spec.BillingPolicyRef, a.Blob
				at.suspendedBy = suspender(tenant, &s.Runtime.Header, &a.Header)
				at.uid, at.RuntimeUID = a.UID, s.Runtime.UID
				out[a.Key] = at
			}
		}
	}
	if owner == "" {
		add(d.Platform.SharedRuntimes)
	}
	if t := d.Tenants[owner]; t != nil {
		if t.Tenant != nil {
			tenant = &t.Tenant.Header
		}
		add(t.SharedRuntimes)
	}
	return out
}

// suspender is the first of documents, from wide to narrow, that says suspend: true.
func suspender(chain ...*schema.Header) schema.Key {
	for _, h := range chain {
		if h != nil && h.Suspend {
			return h.Key
		}
	}
	return schema.Key{}
}

// otherwise are the owners whose standings another state says something else of
// though what they declare is the same: what is held, what policy says, a pause.
func otherwise(last, st *reconciler.State) []string {
	owners := map[string]bool{}
	all := last.Paused != st.Paused
	owners[""] = all || !reflect.DeepEqual(last.Effective.OwnNoncompliant, st.Effective.OwnNoncompliant)
	for name, t := range st.Effective.Tenants {
		owners[name] = all || last.Effective.Tenants[name] != t
	}
	was, is := standingsHeld(last), standingsHeld(st)
	for _, held := range []map[schema.Key]plan.Held{was, is} {
		for k := range held {
			owners[k.Tenant] = owners[k.Tenant] || was[k] != is[k]
		}
	}
	maps.DeleteFunc(owners, func(_ string, changed bool) bool { return !changed })
	return slices.Sorted(maps.Keys(owners))
}

// standingsHeld are the changes of shared runtimes and attachments that are held.
func standingsHeld(st *reconciler.State) map[schema.Key]plan.Held {
	out := map[schema.Key]plan.Held{}
	for _, h := range st.Held {
		if h.Key.Kind == schema.KindSharedRuntime || h.Key.Kind == schema.KindAttachment {
			out[h.Key] = h
		}
	}
	return out
}

// conditions are those of a standing, as an instance has them.
func (s *standing) conditions(key schema.Key, st *reconciler.State, held plan.Held, revision string) []plan.Condition {
	var cs []plan.Condition
	add := func(kind string, is bool, reason, message string) {
		status := "False"
		if is {
			status = "True"
		}
		cs = append(cs, plan.Condition{Type: kind, Status: status, Reason: reason, Message: message, Revision: revision})
	}
	if st.Denied(key) != "" {
		add("Authorized", false, "Held", st.Denied(key))
	} else {
		add("Authorized", true, "Permitted", "")
	}
	switch denied, refused := st.Effective.Denied(key), st.Effective.Noncompliance(key); {
	case refused != nil:
		add("PolicyCompliant", false, fateReason(refused), fateMessage(refused))
	case len(denied) > 0:
		add("PolicyCompliant", false, "policy."+denied[0].Rule, denied[0].Message)
	case held.Reason == estate.HeldDenied:
		add("PolicyCompliant", false, "Held", held.Message)
	default:
		add("PolicyCompliant", true, "Allowed", "")
	}
	const why = "no runtime of this Berth can carry several projects yet"
	add("Ready", false, "NotSupported", why)
	add("Reconciling", false, "NotSupported", "")
	if st.Paused != "" {
		add("Stalled", true, "Paused", st.Paused)
	} else {
		add("Stalled", true, plan.CodeShared, why)
	}
	if !s.suspendedBy.IsZero() {
		add("Suspended", true, "Declared", plan.Suspension(key, s.suspendedBy))
	} else if st.Paused != "" {
		add("Suspended", true, "Paused", st.Paused)
	}
	return cs
}

// stood is the standings of whose estate changed since last, and those that are
// gone since.
func stood(last, d *schema.Desired) (now map[schema.Key]standing, gone []schema.Key) {
	now = map[schema.Key]standing{}
	for _, owner := range changedOwners(last, d) {
		maps.Copy(now, standings(d, owner))
		if last == nil {
			continue
		}
		for k := range standings(last, owner) {
			if _, ok := now[k]; !ok {
				gone = append(gone, k)
			}
		}
	}
	return now, gone
}

// runtimesFirst orders shared runtimes before what is attached to them: what
// others stand on is told of before them, and, when it goes, after them.
func runtimesFirst(a, b schema.Key) int {
	rank := func(k schema.Key) int {
		if k.Kind == schema.KindSharedRuntime {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b))
}

// stand records the standings of a decision. Who calls it holds writer.Decision.
func (r *Reconciler) stand(st *reconciler.State) {
	last := r.stood
	var before *schema.Desired
	if last != nil {
		before = last.Desired
	}
	now, gone := stood(before, st.Desired)
	if last != nil {
		for _, owner := range otherwise(last, st) {
			maps.Copy(now, standings(st.Desired, owner))
		}
	} else {
		for _, s := range r.writer.ResourcesOf(schema.KindSharedRuntime, schema.KindAttachment) {
			if _, ok := now[s.Key]; !ok {
				gone = append(gone, s.Key) // while no daemon ran
			}
		}
	}
	r.stood = st
	held := standingsHeld(st)
	for _, key := range slices.SortedFunc(maps.Keys(now), runtimesFirst) {
		prev := r.writer.Resource(key)
		next := plan.ThingStatus{
			APIVersion: schema.APIVersion, Kind: string(key.Kind) + "Status", Key: key, UID: now[key].uid, Phase: "requested",
			Revision: st.Main, CorrelationID: correlation(st.Main),
		}
		s := now[key]
		next.Detail, _ = json.Marshal(s) // strings only
		if prev != nil && prev.Phase == next.Phase && status.EqualJSON(prev.Detail, next.Detail) {
			next.Revision, next.CorrelationID = prev.Revision, prev.CorrelationID
		}
		next.Conditions = resumed(prev, s.conditions(key, st, held[key], next.Revision), st.Main)
		r.writer.SetResource(prev, next)
	}
	slices.SortFunc(gone, func(a, b schema.Key) int { return runtimesFirst(b, a) })
	for _, key := range gone {
		prev := r.writer.Resource(key)
		if prev == nil {
			continue
		}
		phases := []string{"deleting", "deleted"}
		if key.Kind == schema.KindAttachment {
			phases = []string{"detached"}
		}
		for _, phase := range phases { // nothing was made of it that would have to go first
			next := *prev
			next.Phase, next.Revision, next.CorrelationID = phase, st.Main, correlation(st.Main)
			r.writer.SetResource(prev, next)
			prev = r.writer.Resource(prev.Key)
		}
		r.writer.RemoveResource(prev)
	}
}
