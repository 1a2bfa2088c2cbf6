package load

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/schema"
	"berth/schema/event"
)

// platformRules are the rules of the catalog, of nodes, of policies and of published kinds.
type platformRules struct {
	*problemList
	tree *tree
}

// app refuses a mode or a scope that no instance can have with the others of the app.
// Otherwise an author who lists only one half of a pair expects an effect that never
// comes.
func (r platformRules) app(d *schema.App) {
	const supports = "spec.supports."
	s := &d.Spec
	if i := slices.Index(s.Supports.ControlPlaneScopes, schema.ControlPlanePlatform); i >= 0 && d.Key.Tenant != "" {
		r.broken(Item(supports+"control_plane_scopes", i), "is %s, which serves several tenants, and this app is for one: take it away",
			schema.ControlPlanePlatform)
	}
	r.repeated(supports+"operating_modes", s.Supports.OperatingModes)
	r.repeated(supports+"control_plane_scopes", s.Supports.ControlPlaneScopes)
	modes, scopes := s.Supports.Modes(), s.Supports.Scopes()
	for i, scope := range s.Supports.ControlPlaneScopes {
		if mode := modeOf(scope); !slices.Contains(modes, mode) {
			r.broken(Item(supports+"control_plane_scopes", i),
				"%s goes with %s only, which is not in operating_modes: add it there, or take %s away", scope, mode, scope)
		}
	}
	for i, mode := range s.Supports.OperatingModes {
		if !slices.ContainsFunc(scopes, func(scope string) bool { return modeOf(scope) == mode }) {
			r.broken(Item(supports+"operating_modes", i), "no scope in control_plane_scopes goes with %s: add one, or take %s away", mode,
				mode)
		}
	}
	r.repeated("spec.requires.permissions", s.Requires.Permissions)
	r.repeated("spec.requires.endpoints", s.Requires.Endpoints)
	r.permissions("spec.requires.permissions", s.Requires.Permissions)
}

func (r platformRules) admission(s *schema.AppAdmissionSpec) {
	r.repeated("spec.allowed_control_plane_scopes", s.AllowedControlPlaneScopes)
	r.repeated("spec.allowed_runtime_backends", s.AllowedRuntimeBackends)
	r.repeated("spec.artifact_source_allowlist", s.ArtifactSourceAllowlist)
	if n := len(s.ArtifactSourceAllowlist); n > maxAllowed {
		r.broken("spec.artifact_source_allowlist", "has %d items: at most %d are read", n, maxAllowed)
	}
}

// ownVersion refuses shareable members in a version of a tenant's own app, except its control
// plane. Otherwise a tenant could put members that run its jobs on the nodes of other tenants'
// control planes.
func (r platformRules) ownVersion(d *schema.AppVersion) {
	if d.Key.Tenant == "" {
		return
	}
	for _, name := range sortedNames(d.Spec.Manifest.Roles) {
		if role := d.Spec.Manifest.Roles[name]; role.Shareable && !role.ControlPlane {
			r.broken("spec.manifest.roles."+name+".shareable",
				"is for the control plane only in a version of a tenant's own app: take it away")
		}
	}
}

func (r platformRules) upgradeFrom(d *schema.AppVersion) {
	const path = "spec.manifest.upgrade_from"
	r.repeated(path, d.Spec.Manifest.UpgradeFrom)
	if i := slices.Index(d.Spec.Manifest.UpgradeFrom, d.Key.Name); i >= 0 {
		r.broken(Item(path, i), "is this version itself: take it away")
	}
}

// release refuses a version that its runtime does not know.
func (r platformRules) release(d *schema.AppVersion) {
	if d.Releases != nil && d.Release() == nil {
		r.refuse("spec.version", "schema.release",
			"%s is no version that the runtime %s knows: want one of %s, or a maintenance release of one, such as %s.1",
			d.Spec.Version, d.Spec.RuntimeBackend, strings.Join(d.Releases.Run(), ", "), d.Releases.Run()[0])
	}
}

func (r platformRules) manifest(m *schema.Manifest) {
	control := ""
	for _, name := range sortedNames(m.Roles) {
		role, path := m.Roles[name], "spec.manifest.roles."+name
		if role.Min > role.Max {
			r.broken(path+".min", "is %d, more than max, which is %d", role.Min, role.Max)
		}
		switch {
		case !role.ControlPlane:
		case control != "":
			r.broken(path+".control_plane", "the role %s is the control plane already: a manifest has one", control)
		default:
			control = name
			if role.Min != 1 || role.Max != 1 {
				r.broken(path, "the control plane is always one member: set min and max to 1")
			}
		}
	}
	if control == "" {
		r.broken("spec.manifest.roles", "no role is the control plane: set control_plane: true on one")
	}
}

var deviceRange = regexp.MustCompile(`^(.*)\[(\d+)-(\d+)\]$`)

// devices lists the device files of a GPU's devices field.
func devices(spec string) (all []string) {
	m := deviceRange.FindStringSubmatch(spec)
	if m == nil {
		return []string{spec}
	}
	low, _ := strconv.Atoi(m[2])
	high, _ := strconv.Atoi(m[3])
	for i := low; i <= high; i++ {
		all = append(all, m[1]+strconv.Itoa(i))
	}
	return all
}

// shape checks that the shape of a node is complete and fits the number of its CPUs.
func (r platformRules) shape(c *schema.Capacity) {
	const at = "spec.capacity."
	if c.Shape == (schema.Shape{}) {
		return
	}
	for _, one := range []struct {
		field string
		n     int
	}{{"sockets", c.Sockets}, {"cores_per_socket", c.CoresPerSocket}, {"threads_per_core", c.ThreadsPerCore}} {
		if one.n == 0 {
			r.broken(at+"cpus", "%s is missing: declare sockets, cores_per_socket and threads_per_core together, or none of them",
				one.field)
			return
		}
	}
	if c.CPUs != c.Threads() && c.CPUs != c.Cores() {
		r.broken(at+"cpus", "is %d, but %d sockets with %d cores of %d threads have %d cores and %d threads: declare one of these "+
			"numbers, or leave out sockets, cores_per_socket and threads_per_core",
			c.CPUs, c.Sockets, c.CoresPerSocket, c.ThreadsPerCore, c.Cores(), c.Threads())
	}
}

func (r platformRules) node(n *schema.NodeSpec) {
	r.shape(&n.Capacity)
	seen := map[string]string{}
	for i, g := range n.Capacity.GPUs {
		path := Item("spec.capacity.gpus", i) + ".devices"
		all := devices(g.Devices)
		if len(all) != g.Count {
			r.broken(path, "%s names %d device files, but count is %d", short(g.Devices), len(all), g.Count)
			continue
		}
		for _, dev := range all {
			if other, ok := seen[dev]; ok {
				r.refuse(path, "conflict.device", "%s is named by %s already", dev, other)
				break
			}
			seen[dev] = path
		}
	}
	r.repeated("spec.roles", n.Roles)
}

func (r platformRules) policy(s *schema.PolicySpec) {
	r.overlay("spec", &s.Overlay)
	r.repeated("spec.hard_deny.apps", s.HardDeny.Apps)
	r.repeated("spec.allowed_sites", s.AllowedSites)
	const day = "spec.noncompliant.grace_until"
	switch n := s.Noncompliant; {
	case n.Action == schema.NoncompliantStop && n.GraceUntil == "":
		r.broken("spec.noncompliant", "stops instances without a warning: say the day in grace_until")
	case n.Action == schema.NoncompliantHold && n.GraceUntil != "":
		r.needless(day, "is of no use with hold, which has no end: take it away, or make action stop")
	case n.GraceUntil != "":
		if _, err := time.Parse(time.DateOnly, n.GraceUntil); err != nil {
			r.broken(day, "is %s, which no calendar has", n.GraceUntil)
		}
	}
}

// maxAllowed limits the lists of an overlay: every instance is compared with every item.
const maxAllowed = 256

func (r platformRules) overlay(path string, o *schema.Overlay) {
	for key, list := range map[string][]string{
		"allowed_regions": o.AllowedRegions, "allowed_skus": o.AllowedSKUs, "artifact_source_allowlist": o.ArtifactSourceAllowlist,
		"allowed_operating_modes": o.AllowedOperatingModes, "allowed_control_plane_scopes": o.AllowedControlPlaneScopes,
	} {
		if n := len(list); n > maxAllowed {
			r.broken(path+"."+key, "has %d items: at most %d are read", n, maxAllowed)
		}
		r.repeated(path+"."+key, list)
	}
}

func (r platformRules) source(d *schema.ArtifactSource) {
	s := &d.Spec
	if s.Type == schema.SourceFile && d.Key.Tenant != "" {
		r.broken("spec.type", "is file, which is on Berth's own host: only the platform has such sources")
		return
	}
	r.repeated("spec.repositories", s.Repositories)
	for i, repository := range s.Repositories {
		if strings.Contains(repository, "{project}") && !strings.Contains(repository, "{tenant}") {
			r.broken(Item("spec.repositories", i), "another tenant may have a project of the same name: put {tenant} into it, too")
		}
	}
	if s.Type == schema.SourceFile {
		r.fileSource(s)
		return
	}
	if s.Host == "" {
		r.missing("spec.host", ": a source of type %s has a host", s.Type)
	}
	if s.Directory != "" {
		r.needless("spec.directory", "only a source of type file has one: take it away")
	}
	if len(s.Repositories) > 0 && d.Key.Tenant != "" {
		r.needless("spec.repositories", "only a source of the platform's is shared out by repositories: take it away")
	}
	if s.Type == schema.SourceHTTP && s.Credential != "" {
		r.needless("spec.credential", "only a registry, of type oci, exchanges a secret for a token that expires: take it away")
	}
}

func (r platformRules) fileSource(s *schema.ArtifactSourceSpec) {
	if s.Directory == "" {
		r.missing("spec.directory", ": a source of type file has a directory")
	}
	if s.Host != "" {
		r.needless("spec.host", "a source of type file has none: take it away")
	}
	if s.Credential != "" {
		r.needless("spec.credential", "a source of type file needs none: take it away")
	}
}

func (r platformRules) artifact(s *schema.ArtifactSpec) {
	switch {
	case s.Status == "" && s.Digest != "":
		r.needless("spec.digest", "an artifact with a digest is registered: add status: registered")
	case s.Status != "" && s.Digest == "":
		r.broken("spec.status", "is %s without a digest: add it, or take status away to say what will be published", s.Status)
	}
}

func (r platformRules) rates(d *schema.RateCard) {
	s := &d.Spec
	r.repeated("spec.applies_to", s.AppliesTo)
	r.currencies("spec", r.tree.value["spec"], s.Currency)
	for i, b := range s.By {
		if b.Queue+b.Partition+b.QoS == "" {
			r.broken(Item("spec.by", i), "names no jobs: add queue, partition or qos")
		}
	}
	if d.Key.Name == schema.DefaultRates && len(s.AppliesTo) > 0 {
		r.needless("spec.applies_to", "the card default prices what no other card does, of everybody: take it away")
	}
	if d.Key.Name == schema.DefaultRates && s.Replaces != "" {
		r.needless("spec.replaces", "the card default replaces no other one: take it away")
	}
	switch {
	case s.Replaces != "" && s.Replaces == d.Key.Name:
		r.broken("spec.replaces", "is this card itself: name the card whose prices end")
	case s.Replaces != "" && s.From == "":
		r.broken("spec.replaces", "needs spec.from: give the first day on which this card replaces %s", s.Replaces)
	case s.Replaces == "" && s.From != "":
		r.needless("spec.from", "is the day from which a card replaces another one: name that in replaces, or take it away")
	default:
		r.day("spec.from", s.From)
	}
}

// currencies checks that each price below path, in the spec, that names a currency names that of the card.
func (r platformRules) currencies(path string, value any, of string) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedNames(v) {
			r.currencies(child(path, name), v[name], of)
		}
	case []any:
		for i, item := range v {
			r.currencies(Item(path, i), item, of)
		}
	case string:
		isPrice := strings.HasSuffix(path, "_hour") || strings.HasSuffix(path, "_day") || strings.HasSuffix(path, ".price")
		if _, its, _ := strings.Cut(v, " "); isPrice && its != of {
			r.broken(path, "is in %s, and spec.currency is %s", its, of)
		}
	}
}

func (r platformRules) queues(s *schema.QueueMapSpec) {
	r.repeated("spec.applies_to", s.AppliesTo)
	r.within("spec.applies_to", s.AppliesTo)
	if s.Rollback != nil {
		r.day("spec.rollback.expires_at", s.Rollback.ExpiresAt)
	}
	var names []string
	for _, q := range s.Queues {
		names = append(names, q.Queue)
	}
	if s.FallbackQueue != "" && !slices.Contains(names, s.FallbackQueue) {
		r.broken("spec.fallback_queue", "%q is not one of queues, which are %s%s", s.FallbackQueue, strings.Join(names, ", "),
			DidYouMean(s.FallbackQueue, names))
	}
}

// minActionCooldown keeps a rule from answering the failure of its own action at once, and so on.
const minActionCooldown = 60

func (r platformRules) hook(s *schema.HookRuleSpec) {
	r.repeated("spec.apps", s.Apps)
	r.repeated("spec.applies_to", s.AppliesTo)
	w := &s.When
	r.exactlyOne("spec.when", []string{"event", "threshold", "repeated_failure", "absence", "condition"}, w.Event != "", w.Threshold != nil,
		w.RepeatedFailure != nil, w.Absence != nil, w.Condition != nil)
	kind := r.hookEvent("spec.when.event", w.Event)
	if a := w.Absence; a != nil {
		kind = r.hookEvent("spec.when.absence.event", a.Event)
		if begin := r.hookEvent("spec.when.absence.after", a.After); begin != "" && kind != "" && begin != kind {
			r.broken("spec.when.absence.after", "is an event of kind %s, and event is one of kind %s: no resource has both", begin, kind)
		}
	}
	if c := w.Condition; c != nil {
		kind = c.Kinds()[0]
		if !slices.Contains(c.Statuses(), c.Status) {
			r.broken("spec.when.condition.status", "never comes: %s is %s, or absent", c.Type, strings.Join(c.Statuses(), " or "))
		}
	}
	if t := w.Threshold; t != nil {
		r.exactlyOne("spec.when.threshold", []string{"above", "below"}, t.Above != nil, t.Below != nil)
	}
	onUnit, onNode := w.RepeatedFailure != nil || kind != "" && kind != schema.KindNode, w.Threshold != nil || kind == schema.KindNode
	if onNode && len(s.Apps) > 0 {
		r.needless("spec.apps", "never matches: a node belongs to no app; leave it out")
	}
	if onNode && len(s.AppliesTo) > 0 {
		r.needless("spec.applies_to", "never matches: a node belongs to no tenant; leave it out")
	}
	for i, e := range s.Then {
		at := Item("spec.then", i)
		r.exactlyOne(at, []string{"alert", "webhook", "action"}, e.Alert != nil, e.Webhook != nil, e.Action != nil)
		if e.Action == nil {
			continue
		}
		if s.CooldownSeconds < minActionCooldown {
			r.broken("spec.cooldown_seconds", "is %d: a rule with an action waits at least %d s before it acts on the same resource again",
				s.CooldownSeconds, minActionCooldown)
		}
		if onUnit && !schema.IsOfUnit(e.Action.Operation) {
			r.broken(at+".action.operation", "%s is for members on a node: name retry or hold, or an event or a threshold of nodes",
				e.Action.Operation)
		}
		if onNode && schema.IsOfUnit(e.Action.Operation) {
			r.broken(at+".action.operation", "%s is for an instance or a shared runtime, and spec.when is about nodes",
				e.Action.Operation)
		}
	}
}

// hookEvent checks the type of an event at path, and returns the kind of its resource; "": there is none.
func (r platformRules) hookEvent(path, typ string) (kind schema.Kind) {
	if typ == "" {
		return ""
	}
	if event.Type(typ).IsOfRule() {
		r.broken(path, "is about a rule, and no rule fires on that")
		return ""
	}
	if typ == string(event.ConditionChanged) {
		r.broken(path, "is recorded for rules on conditions: name spec.when.condition")
		return ""
	}
	var types []string
	for _, d := range event.Definitions() {
		if !d.Type.IsOfRule() && d.Type != event.ConditionChanged {
			types = append(types, string(d.Type))
		}
		if string(d.Type) == typ {
			kind = d.Kind
		}
	}
	r.listed(path, typ, types, "no event", "there is "+strings.Join(types, ", "))
	return kind
}
