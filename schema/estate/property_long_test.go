//go:build long

package estate_test

import (
	"testing"

	"berth/examples/explore"
	"berth/schema/estate"
)

// propertyCases is the number of random cases of each property.
const propertyCases = 200

// propertySeed is that of the run.
func propertySeed() uint64 { return explore.MustSeedOfRun() }

func TestLongAnySingleDocumentChange(t *testing.T) { estate.AnySingleDocumentChange(t, 1) }

func TestLongCacheDoesNotChangeResults(t *testing.T) { estate.CacheDoesNotChangeResults(t) }

func TestLongExportedSchemaAgreesWithReader(t *testing.T) { exportedSchemaAgreesWithReader(t) }

func TestLongInForceProperties(t *testing.T) { inForceProperties(t, lab(t), edits(t)) }

func TestLongInForcePropertiesOfReferences(t *testing.T) {
	inForceProperties(t, campus(t), campusEdits(t))
}

func TestLongTenantsDoNotDisturbEachOther(t *testing.T) {
	tenantsDoNotDisturbEachOther(t, lab(t), edits(t))
}

func TestLongTenantsWithReferencesDoNotDisturbEachOther(t *testing.T) {
	tenantsDoNotDisturbEachOther(t, campus(t), campusEdits(t))
}

func TestLongUnreadableTenantStaysInForce(t *testing.T) { unreadableTenantStaysInForce(t) }
