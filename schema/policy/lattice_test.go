package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"berth/schema"
)

// The simple definition of overlays, to test the code against: all possible values, with
// the set of values that each item matches as bits.

var (
	names    = []string{"n0", "n1", "n2", "n3"} // for regions, SKUs, modes and scopes
	patterns = []string{"x", "a.x", "*.x", "b.a.x", "*.a.x", "*.b.a.x", "a.x:1", "*.x:1", "*.x:2", "*.a.x:1", "y", "y:2"}
	hosts    = func() (all []string) {
		for _, h := range []string{"x", "a.x", "zz.x", "b.a.x", "zz.a.x", "c.b.a.x", "zz.b.a.x", "y"} {
			for _, port := range []string{"", ":1", ":2", ":3"} {
				all = append(all, h+port)
			}
		}
		return all
	}()
)

// standsFor returns the hosts that a pattern matches.
func standsFor(pattern string) (all uint64) {
	for i, h := range hosts {
		if matches(pattern, h) {
			all |= 1 << i
		}
	}
	return all
}

// known caches results of standsFor.
var known = map[string]uint64{}

// bits returns the values that a list allows; nil allows all.
func bits(k list, items []string) (all uint64) {
	if items == nil {
		return ^uint64(0)
	}
	for _, item := range items {
		if k.key == sourceHosts().key {
			stands, ok := known[item]
			if !ok {
				stands = standsFor(item)
				known[item] = stands
			}
			all |= stands
		} else {
			all |= 1 << slices.Index(names, item)
		}
	}
	return all
}

// chooser picks numbers below n: at random, or from the bytes of a fuzzer.
type chooser func(n int) int

func (c chooser) list(of []string) []string {
	if c(3) == 0 {
		return nil
	}
	items := []string{}
	for range c(4) {
		items = append(items, of[c(len(of))])
	}
	return items
}

func (c chooser) limit() *int {
	if c(2) == 0 {
		return nil
	}
	n := c(4)
	return &n
}

func (c chooser) overlay() schema.Overlay {
	return schema.Overlay{
		AllowedRegions: c.list(names), AllowedSKUs: c.list(names), AllowedOperatingModes: c.list(names),
		AllowedControlPlaneScopes: c.list(names),
		MaxInstancesPerProject:    c.limit(), MaxGPUsPerInstance: c.limit(), ArtifactSourceAllowlist: c.list(patterns),
	}
}

func (c chooser) quotas() schema.Quotas {
	return schema.Quotas{
		MaxInstancesPerTenant: c.limit(), MaxGPUsPerProject: c.limit(), MaxGPUsPerTenant: c.limit(),
		MaxNodesPerProject: c.limit(), MaxNodesPerTenant: c.limit(),
		MaxWaitingOperationsPerProject: c.limit(), MaxWaitingOperationsPerTenant: c.limit(),
		MaxMonthlyGPUHoursPerProject: c.limit(), MaxMonthlyGPUHoursPerTenant: c.limit(),
		MaxHourlyChangesPerProject: c.limit(), MaxHourlyChangesPerTenant: c.limit(),
		MaxAPIRequestsPerMinutePerProject: c.limit(), MaxAPIRequestsPerMinutePerTenant: c.limit(),
	}
}

func (c chooser) layers() (ls []layer) {
	for i := range 2 + c(3) {
		ls = append(ls, layer{Overlay: c.overlay(), Quotas: c.quotas(), header: &schema.Header{File: fmt.Sprint(i)}, prefix: "spec"})
	}
	return ls
}

// checkLayers tests a chain of layers against the simple definition. The effective value
// of a layer is the set that all layers down to it allow, so it is within the one above.
// It is equal if the layer has no value. A layer is reported as wider exactly if it
// loses a value by that.
func checkLayers(layers []layer) error {
	var wide []string
	last := len(layers) - 1
	above, child := layers[:last], layers[last]
	for _, k := range []list{allowedRegions(), allowedSKUs(), sourceHosts(), allowedModes(), allowedScopes()} {
		want, parent := ^uint64(0), ^uint64(0)
		for i, l := range layers {
			want &= bits(k, k.of(l.Overlay))
			left, _ := k.allow(nil, layers[:i+1])
			got := bits(k, left)
			switch {
			case got != want:
				return fmt.Errorf("%s: layer %d allows %v, all of them %b", k.key, i, left, want)
			case got&^parent != 0:
				return fmt.Errorf("%s: layer %d allows %v, more than the one above it", k.key, i, left)
			case k.of(l.Overlay) == nil && got != parent:
				return fmt.Errorf("%s: layer %d says nothing and changes it", k.key, i)
			}
			parent = got
		}
		effective, _ := k.allow(nil, above)
		for i, item := range k.of(child.Overlay) {
			by, witness, refused := k.refuses(item, above)
			if loses := bits(k, []string{item})&^bits(k, effective) != 0; loses != refused {
				return fmt.Errorf("%s: %s is wider: %v, and loses something: %v", k.key, item, refused, loses)
			}
			if refused {
				wide = append(wide, fmt.Sprintf("spec.%s[%d]", k.key, i))
				if k.key == sourceHosts().key && (!matches(item, witness) || anyMatches(k.of(by.Overlay), witness)) {
					return fmt.Errorf("%s: %s is no witness that %s is wider than %v", k.key, witness, item, k.of(by.Overlay))
				}
			}
		}
	}
	for _, k := range maxima() {
		var want *int
		for i, l := range layers {
			parent := want
			if n := k.of(l); n != nil && (want == nil || *n < *want) {
				want = n
			}
			n, _, ok := k.least(layers[:i+1])
			if ok != (want != nil) || ok && n != *want {
				return fmt.Errorf("%s: layer %d comes to %d", k.key, i, n)
			}
			if n := k.of(l); i == last && n != nil && parent != nil && *n > *parent {
				wide = append(wide, "spec."+k.key)
			}
		}
	}
	var said []string
	for _, d := range wider(above, child) {
		said = append(said, d.Path)
	}
	if !slices.Equal(said, wide) {
		return fmt.Errorf("said to be wider: %v, are: %v", said, wide)
	}
	return nil
}

func describe(layers []layer) string {
	var out string
	for _, l := range layers {
		out += fmt.Sprintf("\n%+v", l.Overlay)
	}
	return out
}

// Layers only narrow, for any values (reliability.md I3).
func TestLayersOnlyNarrow(t *testing.T) { layersOnlyNarrow(t, 1, 20_000) }

func layersOnlyNarrow(t *testing.T, seed uint64, cases int) {
	began := time.Now()
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range cases {
		layers := chooser(r.IntN).layers()
		if err := checkLayers(layers); err != nil {
			t.Fatalf("case %d: %v%s", i, err, describe(layers))
		}
	}
	t.Logf("%d overlays in %v", cases, time.Since(began).Round(time.Millisecond))
}

func FuzzLayers(f *testing.F) {
	f.Add([]byte{2, 1, 3, 1, 2, 3, 1, 0, 1, 3, 2, 1, 1, 2, 9, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		layers := chooser(func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		}).layers()
		if err := checkLayers(layers); err != nil {
			t.Fatalf("%v%s", err, describe(layers))
		}
	})
}
