import { useEffect } from "react";
import { api } from "../api/client";
import type { KnownModel } from "../api/types";
import { createStore, useStore } from "../session/store";

const known = createStore<readonly KnownModel[]>([]);
let asking = false;

/** The models that are known; empty until they are. Asked for whenever something that shows them appears. */
export function useKnownModels(): readonly KnownModel[] {
  useEffect(() => {
    if (asking) return;
    asking = true;
    api
      .models()
      .then(
        (answer) => known.set(() => answer.models),
        () => undefined, // the current model can be shown without
      )
      .finally(() => {
        asking = false;
      });
  }, []);
  return useStore(known, (models) => models);
}
