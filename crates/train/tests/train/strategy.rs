//! The devices and the feed of a run: the documented tables, over all small machines and short lists.

use myxtts_run::config::{Flag, HostResources, Key, Sources};
use myxtts_run::exit::Exit;
use myxtts_run::plan::Plan;
use myxtts_tensor::Device;
use myxtts_train::TrainError;
use myxtts_train::strategy::{
    AvailableGpus, Feed, Strategy, StrategyError, StrategyRequest, fall_back, feed, split, strategy,
};

fn asked(multi_gpu: bool, visible: Option<Vec<u32>>) -> StrategyRequest {
    StrategyRequest {
        multi_gpu,
        visible,
        buffer_size: 50,
        model_start_delay: 2.0,
        ..StrategyRequest::default()
    }
}

/// `None`, and every list of up to three of the numbers 0 to 4, including repetitions.
fn lists() -> Vec<Option<Vec<u32>>> {
    let mut lists: Vec<Vec<u32>> = vec![vec![]];
    for length in 0..3 {
        let longer: Vec<Vec<u32>> = lists
            .iter()
            .filter(|list| list.len() == length)
            .flat_map(|list| (0..=4).map(|id| [&list[..], &[id]].concat()))
            .collect();
        lists.extend(longer);
    }
    std::iter::once(None).chain(lists.into_iter().map(Some)).collect()
}

/// The fault of a list on a machine with `gpus` GPUs, by its first wrong entry.
fn fault(list: &[u32], gpus: u32) -> Option<&'static str> {
    if list.is_empty() {
        return Some("empty");
    }
    list.iter().enumerate().find_map(|(i, id)| match () {
        () if list[..i].contains(id) => Some("twice"),
        () if *id >= gpus => Some("missing"),
        () => None,
    })
}

fn kind(error: &StrategyError) -> &'static str {
    match error {
        StrategyError::Empty { .. } => "empty",
        StrategyError::Twice { .. } => "twice",
        StrategyError::NoSuchGpu { .. } => "missing",
        StrategyError::Contradiction { .. } => "contradiction",
        StrategyError::Uneven { .. } => "uneven",
    }
}

#[test]
fn the_table_holds_on_every_machine_for_every_list() {
    let mut tried = 0;
    for gpus in 0..=4 {
        let found = AvailableGpus::simulated(gpus);
        for multi_gpu in [false, true] {
            for visible in lists() {
                tried += 1;
                let label = format!("{gpus} GPUs, multi_gpu {multi_gpu}, visible {visible:?}");
                let chosen = strategy(&found, &asked(multi_gpu, visible.clone()));
                let may = match visible {
                    Some(list) => match fault(&list, gpus) {
                        Some(wrong) => {
                            let error = chosen.unwrap_err();
                            assert_eq!(kind(&error), wrong, "{label}: {error}");
                            // The message lists the GPUs and the setting.
                            let words = error.to_string();
                            let there = if gpus == 0 { "there is no GPU" } else { "0 (simulated)" };
                            assert!(
                                words.contains(there) && words.contains("visible_gpus"),
                                "{label}: {words}"
                            );
                            continue;
                        }
                        None => list,
                    },
                    None => (0..gpus).collect(),
                };
                let chosen = chosen.unwrap();
                let expected = match (may.len(), multi_gpu) {
                    (0, _) => Strategy::Cpu,
                    (1, _) | (_, false) => Strategy::One(may[0]),
                    (_, true) => Strategy::Mirrored(may.clone()),
                };
                assert_eq!(chosen.choice, expected, "{label}");
                assert!(!chosen.reason.is_empty(), "{label}");
                assert_eq!(!chosen.warnings.is_empty(), multi_gpu && may.len() < 2, "{label}");
                let replicas = if let Strategy::Mirrored(gpus) = &expected { gpus.len() } else { 1 };
                assert_eq!(expected.devices(&found), vec![Device::Cpu; replicas], "{label}: simulated");
            }
        }
    }
    assert_eq!(tried, 5 * 2 * (1 + 1 + 5 + 25 + 125));
}

#[test]
fn a_named_device_overrides_and_conflicts_are_errors() {
    for gpus in 0..=4u32 {
        let found = AvailableGpus::simulated(gpus);
        for multi_gpu in [false, true] {
            for visible in [None, Some(vec![0]), Some(vec![1, 0]), Some(vec![7])] {
                for model in [None, Some(vec![0]), Some(vec![1]), Some(vec![0, 1])] {
                    for device in [Device::Cpu, Device::Cuda(0), Device::Cuda(1), Device::Cuda(9)] {
                        let label = format!("{gpus}, {multi_gpu}, {visible:?}, {model:?}, {device}");
                        let asked = StrategyRequest {
                            device: Some(device),
                            model: model.clone(),
                            ..asked(multi_gpu, visible.clone())
                        };
                        let chosen = strategy(&found, &asked);
                        let id = match device {
                            Device::Cpu => {
                                let clash = multi_gpu || model.is_some();
                                assert_eq!(chosen.is_err(), clash, "{label}: {chosen:?}");
                                if !clash {
                                    assert_eq!(chosen.unwrap().choice, Strategy::Cpu, "{label}");
                                }
                                continue;
                            }
                            Device::Cuda(id) => id as u32,
                        };
                        let there = |list: &Option<Vec<u32>>| {
                            list.as_ref().is_none_or(|list| list.iter().all(|&id| id < gpus))
                        };
                        let possible = id < gpus && there(&visible) && there(&model);
                        let agreed = !multi_gpu
                            && model.as_ref().is_none_or(|model| *model == [id])
                            && visible.as_ref().is_none_or(|visible| visible.contains(&id));
                        match chosen {
                            Ok(chosen) => {
                                assert!(possible && agreed, "{label}");
                                assert_eq!(chosen.choice, Strategy::One(id), "{label}");
                                assert!(chosen.reason.contains("--device"), "{label}");
                            }
                            Err(error) => {
                                assert!(!(possible && agreed), "{label}: {error}");
                                assert_eq!(TrainError::from(error).exit(), Exit::Usage, "{label}");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_data_gpu_is_used_only_if_both_settings_are_given() {
    for gpus in 1..=4u32 {
        let found = AvailableGpus::simulated(gpus);
        for data in std::iter::once(None).chain((0..=4).map(Some)) {
            for model in lists() {
                let label = format!("{gpus} GPUs, data {data:?}, model {model:?}");
                let asked = StrategyRequest { data, model: model.clone(), ..asked(false, None) };
                let chosen = feed(&found, &asked);
                let wrong = model.as_deref().and_then(|model| fault(model, gpus));
                let missing = data.filter(|&data| data >= gpus).map(|_| "missing");
                if let Some(wrong) = missing.or(wrong) {
                    assert_eq!(kind(&chosen.unwrap_err()), wrong, "{label}");
                    continue;
                }
                let chosen = chosen.unwrap();
                match (data, &model) {
                    (Some(data), Some(model)) => {
                        let expected = Feed::MultiGpu {
                            data,
                            model: model.clone(),
                            buffer_size: 50,
                            model_start_delay: 2.0,
                        };
                        assert_eq!(chosen.choice, expected, "{label}");
                        assert_eq!(!chosen.warnings.is_empty(), model.contains(&data), "{label}");
                        assert!(chosen.reason.contains("50") && chosen.reason.contains("2 s"), "{label}");
                        // Several GPUs for the model are mirrored, one is not; the GPU for data does not count.
                        let placed = strategy(&found, &asked).unwrap().choice;
                        let one = || Strategy::One(model[0]);
                        let expected =
                            if model.len() > 1 { Strategy::Mirrored(model.clone()) } else { one() };
                        assert_eq!(placed, expected, "{label}");
                    }
                    _ => {
                        assert_eq!(chosen.choice, Feed::Buffered, "{label}");
                        assert_eq!(
                            !chosen.warnings.is_empty(),
                            data.is_some(),
                            "{label}: {:?}",
                            chosen.warnings
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_model_must_be_on_a_gpu_that_is_visible() {
    let found = AvailableGpus::simulated(4);
    let asked = StrategyRequest { model: Some(vec![1, 3]), ..asked(true, Some(vec![0, 1])) };
    let error = strategy(&found, &asked).unwrap_err();
    assert_eq!(kind(&error), "contradiction");
    assert!(error.to_string().contains("with 3"), "{error}");
}

#[test]
fn hidden_gpus_are_reported() {
    let found = AvailableGpus {
        gpus: vec![(0, "H".into())],
        hidden_by: Some("2".into()),
        why: None,
        simulated: None,
    };
    let error = strategy(&found, &asked(false, Some(vec![2]))).unwrap_err().to_string();
    assert!(error.contains("CUDA_VISIBLE_DEVICES is \"2\"") && error.contains("from 0"), "{error}");
    let none = AvailableGpus { why: Some("NVRTC is missing for the GPU".into()), ..AvailableGpus::default() };
    let chosen = strategy(&none, &asked(true, None)).unwrap();
    assert_eq!(chosen.choice, Strategy::Cpu);
    assert!(chosen.reason.contains("NVRTC"), "{}", chosen.reason);
}

#[test]
fn a_batch_is_split_evenly_or_refused_with_those_that_can_be() {
    assert_eq!(split(56, 4), Ok(14));
    let error = split(56, 3).unwrap_err();
    assert_eq!(error, StrategyError::Uneven { rows: 56, replicas: 3 });
    assert!(error.to_string().contains("54 or 57"), "{error}");
    assert!(split(2, 3).unwrap_err().to_string().contains(": 3 can"));
}

#[test]
fn the_request_has_the_settings_of_the_plan() {
    let flag = |path: &str, value: &str| Flag::Own {
        name: path.to_owned(),
        key: Key::find(path).unwrap(),
        value: value.to_owned(),
    };
    let mut sources = Sources::for_host(HostResources { cores: 4, memory_bytes: None });
    sources.command_line = vec![
        flag("training.multi_gpu", "true"),
        flag("training.visible_gpus", "2,0"),
        flag("data.data_gpu", "1"),
        flag("data.model_gpu", "2,0"),
        flag("data.buffer_size", "7"),
    ];
    let plan = Plan::resolve(&sources).unwrap();
    let asked = StrategyRequest::of(&plan, None);
    let expected = StrategyRequest {
        device: None,
        multi_gpu: true,
        visible: Some(vec![2, 0]),
        model: Some(vec![2, 0]),
        data: Some(1),
        buffer_size: 7,
        model_start_delay: 2.0,
    };
    assert_eq!(asked, expected);
    assert_eq!(
        strategy(&AvailableGpus::simulated(3), &asked).unwrap().choice,
        Strategy::Mirrored(vec![2, 0])
    );
}

#[test]
fn two_gpus_on_a_machine_with_one_were_an_error() {
    let apart = |data, model: &[u32]| StrategyRequest {
        data: Some(data),
        model: Some(model.to_vec()),
        buffer_size: 4,
        ..StrategyRequest::default()
    };
    let one = AvailableGpus::simulated(1);
    let (instead, said) = fall_back(&one, &apart(0, &[1])).unwrap();
    assert_eq!((instead.data, &instead.model), (None, &None));
    assert!(said.contains("there is 0 (simulated)") && said.contains("--strict-devices"), "{said}");
    assert_eq!(strategy(&one, &instead).unwrap().choice, Strategy::One(0));
    assert_eq!(feed(&one, &instead).unwrap().choice, Feed::Buffered);
    // Existing GPUs are kept.
    let (instead, _) = fall_back(&one, &apart(1, &[0])).unwrap();
    assert_eq!((instead.data, instead.model), (None, Some(vec![0])));
    let (instead, said) = fall_back(&AvailableGpus::simulated(3), &apart(0, &[1, 2, 3])).unwrap();
    assert_eq!((instead.data, instead.model), (Some(0), Some(vec![1, 2])));
    assert!(said.contains("0 prepares batches for 1 and 2"), "{said}");
    // Nothing to fall back from or to; and naming a single GPU is binding.
    assert_eq!(fall_back(&AvailableGpus::simulated(2), &apart(0, &[1])), None);
    assert_eq!(fall_back(&AvailableGpus::simulated(0), &apart(0, &[1])), None);
    assert_eq!(fall_back(&one, &StrategyRequest { data: None, ..apart(0, &[1]) }), None);
    assert!(strategy(&one, &apart(0, &[1])).is_err());
}

#[test]
fn one_gpu_can_simulate_several() {
    let found = AvailableGpus::simulated_on(Device::Cuda(3), 2);
    let chosen = strategy(&found, &asked(true, None)).unwrap().choice;
    assert_eq!(chosen, Strategy::Mirrored(vec![0, 1]));
    assert_eq!(chosen.devices(&found), vec![Device::Cuda(3); 2]);
}
