// What a board is made of. An option that a panel leaves out has a default, so options are partial.
import type { Dashboard, Panel, RowPanel } from '@grafana/schema';
import type * as bargauge from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen';
import type * as gauge from '@grafana/schema/dist/esm/raw/composable/gauge/panelcfg/x/GaugePanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as statetimeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

export interface Root {
  board: Dashboard;
  panel: Panel;
  row: RowPanel;
  options: {
    bargauge: Partial<bargauge.Options>;
    gauge: Partial<gauge.Options>;
    stat: Partial<stat.Options>;
    'state-timeline': Partial<statetimeline.Options>;
    table: Partial<table.Options>;
    timeseries: Partial<timeseries.Options>;
  };
  custom: {
    'state-timeline': statetimeline.FieldConfig;
    table: Partial<table.FieldConfig>;
    timeseries: timeseries.FieldConfig;
  };
}
